"""Fault points in an engine: one actor beside each events partition that it owns, their ticks, and
the health checks of dependencies whose breaker is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import structlog

from dalsegno.schemas.control import Dependency
from dalsegno.schemas.faults import HealthReported
from dalsegno.streams.agents.health import check
from dalsegno.streams.core.faultpoint.point import FaultPoint, Phase
from dalsegno.streams.engine.actor import ActorTask
from dalsegno.streams.engine.context import EngineContext
from dalsegno.streams.engine.errors import EngineError
from dalsegno.streams.engine.faults_reader import FaultsReader

log = structlog.get_logger(__name__)

_LOOK_S: Final = 0.1
CHECKS_AT_ONCE: Final = 8
# However often a policy asks for it.
_INTERVAL_S_MIN: Final = 0.1


class FaultsService:
    """The actors of one engine. Called with the context and the number of a partition that is ours.

    One loop looks after the ticks and checks of all: with nothing open it finds nothing to do.
    """

    def __init__(self) -> None:
        self.actors: dict[int, Actor] = {}
        self._reader: FaultsReader | None = None
        self._loop: asyncio.Task[None] | None = None
        self._jobs: set[asyncio.Task[None]] = set()
        self._checked_s: dict[str, float] = {}
        self._checking: set[str] = set()

    def __call__(self, context: EngineContext, number: int) -> Actor:
        """The actor of a partition that was opened."""
        if self._reader is None:
            self._reader = FaultsReader(context.settings)
        actor = Actor(context, number, self._reader, self)
        self.actors[number] = actor
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._look(context))
        return actor

    def forget(self, actor: Actor) -> None:
        """Its partition is no longer ours."""
        if self.actors.get(actor.number) is actor:
            del self.actors[actor.number]
        if not self.actors and self._loop is not None:
            self._loop.cancel()
            self._loop = None

    async def _look(self, context: EngineContext) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for actor in list(self.actors.values()):
                try:
                    self._look_after(context, actor)
                except Exception:
                    # The boundary of this task: without it the breakers of all others stay open.
                    log.exception("fault points not looked after", partition=actor.number)

    def _look_after(self, context: EngineContext, actor: Actor) -> None:
        if actor.tick_owed():
            self._spawn(actor.tick())
        if actor.fold is not None and actor.fold.declared.policy.dependencies:
            self._checks(context, actor)

    def _checks(self, context: EngineContext, actor: Actor) -> None:
        assert actor.fold is not None
        now_s = context.clock()
        for point in actor.fold.points.values():
            declared = actor.fold.declared.get(point.name)
            if declared is not None and self._due(point, declared, now_s):
                self._checked_s[point.name] = now_s
                self._checking.add(point.name)
                number = point.health_number + 1
                self._spawn(self._check(context, actor, (point.name, number), declared))

    def _due(self, point: FaultPoint, declared: Dependency, now_s: float) -> bool:
        if not point.checked or point.phase is not Phase.OPEN or point.held_open:
            return False
        if point.name in self._checking or len(self._checking) >= CHECKS_AT_ONCE:
            return False
        interval_s = max(_INTERVAL_S_MIN, declared.interval_ms / 1_000)
        return now_s - self._checked_s.get(point.name, -interval_s) >= interval_s

    async def _check(
        self,
        context: EngineContext,
        actor: Actor,
        about: tuple[str, int],
        declared: Dependency,
    ) -> None:
        name, number = about
        functions = frozenset(context.settings.health_functions)
        began_s = context.clock()
        try:
            healthy, detail = await check(declared, functions, name)
            took_ms = int((context.clock() - began_s) * 1_000)
            await actor.append(
                HealthReported(
                    fault_point=name,
                    number=number,
                    healthy=healthy,
                    took_ms=took_ms,
                    detail=detail,
                    source=context.settings.owner,
                )
            )
        except EngineError as error:
            log.warning("health check not appended", fault_point=name, error=str(error))
        finally:
            self._checking.discard(name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        job = asyncio.create_task(work)
        self._jobs.add(job)
        job.add_done_callback(self._ended)

    def _ended(self, job: asyncio.Task[None]) -> None:
        self._jobs.discard(job)
        if not job.cancelled() and (error := job.exception()) is not None:
            log.error("a tick or a health check failed", error=repr(error))


class Actor(ActorTask):
    """One actor, known to its service."""

    def __init__(
        self, context: EngineContext, number: int, reader: FaultsReader, service: FaultsService
    ) -> None:
        super().__init__(context, number, reader)
        self._service = service

    async def close(self) -> None:
        """Its partition is no longer ours."""
        self._service.forget(self)
        await super().close()
