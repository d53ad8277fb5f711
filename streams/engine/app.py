"""One engine process, from its start to its exit code.

Order of a start: web server → wait for a broker → checks → owners → Faust app → partitions. The
exit code says to a supervisor what happened: see `ExitCode`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Coroutine, Sequence
from enum import IntEnum
from typing import Any, Final

import faust
import structlog
import uvloop
from aiokafka.errors import BrokerResponseError, KafkaError
from confluent_kafka import KafkaError as KafkaCode
from confluent_kafka import KafkaException

from dalsegno.schemas.intake import Intake
from dalsegno.storage.archive.objects import Objects
from dalsegno.storage.blobs.store import BlobStore
from dalsegno.streams.client.refused import BrokerRefused, rights_refusal
from dalsegno.streams.engine.blob_settings import open_blobs
from dalsegno.streams.engine.connections import mend_connections
from dalsegno.streams.engine.context import ActorFactory, EngineContext, Layout
from dalsegno.streams.engine.control import ControlAppender
from dalsegno.streams.engine.daemon import in_daemon_thread
from dalsegno.streams.engine.errors import (
    BrokerLostError,
    EngineError,
    EvictedError,
    StartRefusedError,
)
from dalsegno.streams.engine.faust_app import make_app
from dalsegno.streams.engine.fold import FoldFactory
from dalsegno.streams.engine.janitor import EngineService, Janitor
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.monitor import MonitorFactory
from dalsegno.streams.engine.outputs import LINGER_MS
from dalsegno.streams.engine.owners import OwnersView
from dalsegno.streams.engine.ownership import Ownership
from dalsegno.streams.engine.producers import IdempotentProducer, ProducerPool
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.signatures import verify_ed25519
from dalsegno.streams.engine.signing import Signer
from dalsegno.streams.engine.start import ready_topics, wait_for_broker
from dalsegno.streams.engine.stopping import StopAskedError, StopSignals, unless
from dalsegno.streams.engine.topics_admin import TopicAdmin
from dalsegno.streams.engine.transport import install
from dalsegno.streams.engine.warm_tier import StoreFullError, WarmTier, open_tier
from dalsegno.streams.engine.web import EngineWeb

log = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0
_NO_ANSWER: Final = "no answer in time"
_UNREACHABLE: Final = frozenset(
    {KafkaCode._TRANSPORT, KafkaCode._ALL_BROKERS_DOWN, KafkaCode._TIMED_OUT}
)

AgentSetup = Callable[[faust.App, EngineSettings], None]
"""Registers the agents that consume the engine's topics:
`dalsegno.streams.agents.events.register`.
"""

_FAUST_STOP_SHARE: Final = 0.8
"""Of what is left of the stop timeout: final checkpoints, and the group left. The rest is for the
producers.
"""
_TAKEN_NOTHING: Final = "engine stopped before it was in the group: it has taken nothing over"


class ExitCode(IntEnum):
    """What the process ends with."""

    STOPPED = 0
    FAILED = 1
    START_REFUSED = 3
    EVICTED = 4


def run_engine(
    settings: EngineSettings,
    agents: AgentSetup,
    *,
    folds: FoldFactory,
    monitors: MonitorFactory | None = None,
    actors: ActorFactory | None = None,
    services: Sequence[EngineService] = (),
) -> int:
    """Run an engine in this process until a signal or an error. Returns an `ExitCode`."""
    # What the start has made stays: a full collection of it would hold every event up, each time.
    gc.freeze()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    mend_connections()
    with asyncio.Runner() as runner:
        engine = Engine(
            settings, agents, folds, monitors=monitors, actors=actors, services=services
        )
        return int(runner.run(engine.run()))


class Engine:
    """The parts of one engine process, and the order in which they start and stop."""

    def __init__(
        self,
        settings: EngineSettings,
        agents: AgentSetup,
        folds: FoldFactory,
        *,
        monitors: MonitorFactory | None,
        actors: ActorFactory | None = None,
        services: Sequence[EngineService] = (),
    ) -> None:
        self._settings = settings
        self._agents = agents
        self._folds = folds
        self._monitors = monitors
        self._actors = actors
        self._services = services
        self._metrics = EngineMetrics()
        self._objects: Objects | None = None
        self._blobs: BlobStore | None = None

    async def run(self) -> ExitCode:
        """Start, run, stop."""
        settings = self._settings
        stop = StopSignals(settings.stop_timeout_ms / 1_000)
        stop.install()
        opened = open_blobs(settings.archive, settings.archive_prefix, settings.blobs)
        self._objects, self._blobs = (None, None) if opened is None else opened
        web = EngineWeb(settings, self._metrics, self._blobs)
        try:
            url = await web.start()
        except OSError as error:
            variables = "DALSEGNO_HTTP_HOST, DALSEGNO_HTTP_PORT"
            # The error says it all.
            log.error("HTTP cannot be served", variables=variables, error=str(error))  # noqa: TRY400
            await self._close(web)
            return ExitCode.FAILED
        try:
            while True:
                try:
                    return await self._begin(web, url, stop)
                except BrokerLostError as error:
                    log.warning("broker lost during the start: begins anew", error=str(error))
                    web.starting()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_RETRY_S):
                            await stop.requested.wait()
        except StartRefusedError as error:
            for fault in error.faults:
                log.error("start refused", fault=fault)  # noqa: TRY400 - the fault says it all
            return ExitCode.START_REFUSED
        except (EngineError, KafkaError, OSError):
            log.exception("engine failed")
            return ExitCode.FAILED
        finally:
            await self._close(web)

    async def _close(self, web: EngineWeb) -> None:
        await web.close()
        if self._objects is not None:
            self._objects.close()

    async def _begin(self, web: EngineWeb, url: str, stop: StopSignals) -> ExitCode:
        owners = OwnersView(self._settings)
        try:
            layout = await unless(stop.requested, self._prepare(stop, owners))
            if layout is not None:
                return await self._serve(layout, owners, web, url, stop)
        except StopAskedError:
            pass
        finally:
            await owners.close()
        log.info(_TAKEN_NOTHING)
        return ExitCode.STOPPED

    async def _prepare(self, stop: StopSignals, owners: OwnersView) -> Layout | None:
        """Everything before the group is joined; None if we were told to stop meanwhile."""
        if not await wait_for_broker(self._settings, stop.requested):
            return None
        try:
            admin = TopicAdmin(self._settings)
            layout = await ready_topics(self._settings, admin)
            await owners.start()
            await owners.check_layout(layout.partitions)
            events = self._settings.topics.events
            identity = await in_daemon_thread(lambda: admin.identity(events), "identity")
            await owners.check_events(identity)
        except TimeoutError as error:
            raise BrokerLostError(_NO_ANSWER) from error
        except BrokerRefused as error:  # as at the first answer: what was mended needs a start
            raise StartRefusedError((str(error),)) from error
        except (KafkaError, KafkaException) as error:
            _raise_if_lost(error)
            raise
        return layout

    async def _warm(self) -> WarmTier | None:
        try:
            return await in_daemon_thread(
                lambda: open_tier(self._settings, self._metrics), "data-folder"
            )
        except TimeoutError as error:  # an `OSError` too, and none of the folder's
            raise BrokerLostError(_NO_ANSWER) from error
        except (StoreFullError, OSError) as error:
            raise StartRefusedError((f"DALSEGNO_DATA_DIR: {error}",)) from error
        except KafkaException as error:
            _raise_if_lost(error)
            raise

    async def _serve(
        self, layout: Layout, owners: OwnersView, web: EngineWeb, url: str, stop: StopSignals
    ) -> ExitCode:
        settings = self._settings
        pool = ProducerPool(lambda lane: IdempotentProducer(settings, LINGER_MS.get(lane, 0.0)))
        signer = Signer(settings.topics.events, layout.partitions, settings.keyring)
        control = ControlAppender(pool, signer)
        warm = await unless(stop.requested, self._warm())
        context = EngineContext(
            settings=settings,
            layout=layout,
            folds=self._folds,
            intake=Intake(
                settings.topics.events, layout.partitions, settings.keyring, verify_ed25519
            ),
            pool=pool,
            control=control,
            metrics=self._metrics,
            clock=time.monotonic,
            url=url,
            monitors=self._monitors,
            actors=self._actors,
            warm=warm,
            blobs=self._blobs,
            objects=self._objects,
        )
        ownership = Ownership(context, asyncio.get_running_loop())
        app = make_app(settings)
        install(app, ownership)
        self._agents(app, settings)
        web.serve(ownership, owners)
        janitor = Janitor(ownership, app, self._services)
        log.info("joining the group", group=settings.group)
        # What has begun ends in reverse, all of it although one part fails.
        async with contextlib.AsyncExitStack() as ends:
            if warm is not None:
                ends.push_async_callback(asyncio.to_thread, warm.close)
            ends.push_async_callback(_close_pool, pool, ownership)
            ends.push_async_callback(_stop_app, app, stop)
            ends.push_async_callback(janitor.close)
            reason = None
            try:
                await unless(stop.requested, _start_app(app))
            except StopAskedError:
                if not ownership.tasks:
                    log.info(_TAKEN_NOTHING)
            else:
                ends.callback(stop.arm)
                janitor.start()
                reason = await _first(stop.requested.wait(), ownership.stopped_by)
        return _exit_code(reason or ownership.unclean)


def _raise_if_lost(error: KafkaError | KafkaException) -> None:
    """Raises `BrokerLostError` for what passes when the broker is back, `StartRefusedError` for
    a right that is missing; returns for the rest.
    """
    code: KafkaCode | None = None
    if isinstance(error, BrokerResponseError):
        code = KafkaCode(error.errno)
    elif isinstance(error, KafkaException):
        code = error.args[0]
    refusal = rights_refusal(code) if code is not None else None
    if refusal is not None:
        raise StartRefusedError((str(refusal),)) from error
    if isinstance(error, KafkaError):
        passes = bool(error.retriable)
    else:
        passes = error.args[0].retriable() or error.args[0].code() in _UNREACHABLE
    if passes:
        raise BrokerLostError(repr(error)) from error


async def _first(
    stop: Coroutine[Any, Any, object], failure: asyncio.Future[BaseException]
) -> BaseException | None:
    """Wait for either: None if we were told to stop, else the error."""
    asked = asyncio.create_task(stop)
    waiting: tuple[asyncio.Future[Any], ...] = (asked, failure)
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    if not asked.done():
        asked.cancel()
    return failure.result() if failure.done() else None


async def _start_app(app: faust.App) -> None:
    try:
        await app.start()
    except KafkaError as error:
        _raise_if_lost(error)
        raise


async def _stop_app(app: faust.App, stop: StopSignals) -> None:
    limit_s = stop.left_s() * _FAUST_STOP_SHARE
    stopping = asyncio.create_task(app.stop())  # Faust's services look at the task they run in
    # Not cancelled at the limit: mode would take that for the end of a service that still runs.
    ended, _ = await asyncio.wait([stopping], timeout=limit_s)
    if ended:
        stopping.result()
    else:
        log.warning("the Faust app has not stopped in time, and is left", limit_s=limit_s)


async def _close_pool(pool: ProducerPool, ownership: Ownership) -> None:
    """What fails here is what the engine ends with, unless something has failed before."""
    try:
        await pool.close()
    except ExceptionGroup as failures:
        log.warning("not closed cleanly", error=repr(failures))
        ownership.unclean = ownership.unclean or failures


def _exit_code(reason: BaseException | None) -> ExitCode:
    if reason is None:
        log.info("engine stopped")
        return ExitCode.STOPPED
    log.error("engine stopped by an error", error=repr(reason))
    return ExitCode.EVICTED if isinstance(reason, EvictedError) else ExitCode.FAILED
