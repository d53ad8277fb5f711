"""A worker: runs the steps of flows, one process under one name, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from confluent_kafka import KafkaException

from dalsegno.streams.client.blobs import Blobs
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.cluster import cluster_of
from dalsegno.streams.client.config import ClientConfig, Security, WorkerConfig
from dalsegno.streams.client.directory import Directory
from dalsegno.streams.client.engines import Engines
from dalsegno.streams.client.errors import (
    DeliveryFailed,
    FlowError,
    ReportsLost,
    SettingsError,
    WorkerFenced,
)
from dalsegno.streams.client.event_encoder import EventEncoder
from dalsegno.streams.client.flow import Flow
from dalsegno.streams.client.naming import WorkerName, check_name, claim_name
from dalsegno.streams.client.producer import OutRecord, Producer
from dalsegno.streams.client.schema_registry import RegistryUnavailable
from dalsegno.streams.client.session import Ending, Session, WorkerCounts
from dalsegno.streams.client.step import Step
from dalsegno.streams.client.stopping import run_stop_hooks, stop_hooks

_LOG = logging.getLogger("dalsegno.worker")
_RETRY_S = 0.5  # between two tries to start while no broker answers
_FLUSH_S = 5.0  # at least, for reports that are on their way when the time for steps is over
_FLUSH_REST_S = 1.0  # for what is no report, such as heartbeats


class Worker:
    """Takes handoffs of its flows' queues and runs their bodies, `concurrency` at a time.

    `queues`: only of these, by default of all that the flows' steps go to. `name` is stable across
    restarts; by default the host's name and the lowest free number. `settings` holds what is seldom
    changed. Usable once.
    """

    def __init__(
        self,
        flows: Iterable[Flow],
        *,
        bootstrap_servers: str | None = None,
        prefix: str | None = None,
        security: Security | None = None,
        name: str | None = None,
        concurrency: int = 200,
        queues: Iterable[str] = (),
        settings: WorkerConfig | None = None,
        clocks: Clocks | None = None,
    ) -> None:
        """Raises `FlowError` for flows that cannot be told apart, `SettingsError` without a broker
        and for a queue that no step goes to.
        """
        self._config = ClientConfig.resolve(bootstrap_servers, prefix, security)
        self._settings = replace(settings or WorkerConfig(), concurrency=concurrency)
        self._clocks = clocks or Clocks()
        self._name = name
        given = tuple(flows)
        self.steps = _of_queues(_steps_of(given), frozenset(queues))
        """What it runs, by flow, flow version and name."""
        self._stop_hooks = stop_hooks(given)
        self._encode = EventEncoder(self._config.registry)
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._stop_asked_s: float | None = None
        self._undelivered: dict[int, OutRecord] = {}
        self._session_ended: asyncio.Future[Ending] | None = None
        self.counts = WorkerCounts()
        self.ready = threading.Event()
        """Set while the worker is introduced and takes handoffs."""

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, then stop gracefully.

        Raises `WorkerFenced` when another process took the name, `NameInUse`, `SettingsError`,
        and `ReportsLost` when it has stopped and not every report was acknowledged.
        """
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self.serve(signals=threading.current_thread() is threading.main_thread()))

    def stop(self) -> None:
        """Ask for a graceful stop, from any thread; `run` returns when it is done."""
        self._stopping.set()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: so the worker has ended
                self._loop.call_soon_threadsafe(self._stop_now)

    def _stop_now(self) -> None:
        if self._stop_asked_s is None and self._loop is not None:
            self._stop_asked_s = self._loop.time()
        self._wake.set()
        if self._session_ended is not None and not self._session_ended.done():
            self._session_ended.set_result(Ending.STOPPED)

    async def serve(self, *, signals: bool = False) -> None:
        """As `run`, on the caller's loop. `signals` installs handlers for SIGTERM and SIGINT."""
        self._loop = asyncio.get_running_loop()
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self.stop)
        name: WorkerName | None = None
        try:
            name = await self._named()
            if name is not None:
                await self._sessions(name)
        finally:
            # Without a name no body has run, and whoever has it may share what the hooks close.
            if name is not None:
                try:
                    await run_stop_hooks(self._stop_hooks, self._settings.stop_timeout_ms / 1_000)
                finally:
                    name.release()

    async def _named(self) -> WorkerName | None:
        """The name in the cluster, which a broker has to tell. None if a stop was asked before."""
        if self._name is not None:
            check_name(self._name)
        while not self._stopping.is_set():
            try:
                cluster = await asyncio.to_thread(cluster_of, self._config)
            except DeliveryFailed as error:
                await self._rest(error)
            else:
                return claim_name(self._config.prefix, self._name, cluster=cluster)
        return None

    async def _rest(self, error: Exception) -> None:
        _LOG.warning("cannot start yet, trying again: %s", error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RETRY_S):
                await self._wake.wait()

    async def _sessions(self, name: WorkerName) -> None:
        """A session that lost its lease is over, and a new one says hello; any other end is the
        end.
        """
        producer = Producer(self._config, name.name)
        config = self._config
        engines = Engines(Directory(config, name.name))
        cache_bytes = self._settings.blob_cache_bytes
        blobs = Blobs(engines, from_bytes=config.blobs_from_bytes, cache_bytes=cache_bytes)
        try:
            while not self._stopping.is_set():
                session = Session(
                    self._config,
                    self._settings,
                    clocks=self._clocks,
                    steps=self.steps,
                    name=name,
                    producer=producer,
                    counts=self.counts,
                    encode=self._encode,
                    blobs=blobs,
                    undelivered=self._undelivered,
                )
                ending = await self._session(session)
                if ending is Ending.FENCED:
                    raise WorkerFenced(name.name, session.detail)
        finally:
            await asyncio.to_thread(engines.close)
            left = await asyncio.to_thread(producer.close, self._flush_s())
            if left:
                _LOG.warning("%d records were not acknowledged before the stop", left)
        if self._undelivered:
            raise ReportsLost(name.name, len(self._undelivered))

    def _flush_s(self) -> float:
        """What is left of the stop's bound, for reports; a little is there in any case."""
        if not self._undelivered:
            return _FLUSH_REST_S
        bound_s = self._settings.stop_timeout_ms / 1_000
        if self._loop is None or self._stop_asked_s is None:
            return max(_FLUSH_S, bound_s)
        return max(_FLUSH_S, bound_s - (self._loop.time() - self._stop_asked_s))

    async def _session(self, session: Session) -> Ending:
        try:
            if not await self._opened(session):
                return Ending.STOPPED
            self._undelivered.clear()  # of earlier sessions: what they held goes out again
            self.ready.set()
            self._session_ended = session.ended
            if self._stopping.is_set():
                self._stop_now()
            return await session.ended
        finally:
            self.ready.clear()
            await session.close()

    async def _opened(self, session: Session) -> bool:
        """A broker that does not answer is waited for. False if a stop was asked meanwhile."""
        while not self._stopping.is_set():
            try:
                await session.open()
            except (DeliveryFailed, KafkaException, RegistryUnavailable) as error:
                await self._rest(error)
            else:
                return True
        return False


def _steps_of(flows: Iterable[Flow]) -> dict[tuple[str, int, str], Step]:
    """Steps by (flow, flow version, name); those that services run by themselves left out."""
    found: dict[tuple[str, int, str], Step] = {}
    seen: set[tuple[str, int]] = set()
    for flow in flows:
        if (flow.name, flow.version) in seen:
            raise FlowError(flow.name, "", f"version {flow.version} is given twice")
        seen.add((flow.name, flow.version))
        flow.plan()  # what cannot be resolved is an error now, not at the first handoff
        for step in flow:
            if step.function is not None:
                found[flow.name, flow.version, step.name] = step
    if not found:
        raise FlowError("", "", "a worker needs at least one flow with a step that it can run")
    return found


def _of_queues(
    steps: dict[tuple[str, int, str], Step], queues: frozenset[str]
) -> dict[tuple[str, int, str], Step]:
    """The steps that go to one of `queues`; all of them if none is named."""
    known = {step.queue for step in steps.values()}
    for queue in sorted(queues - known):
        raise SettingsError(
            f"no step goes to queue {queue!r}: the flows name {', '.join(sorted(known))}"
        )
    return {key: step for key, step in steps.items() if not queues or step.queue in queues}


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed; asyncio's own loop otherwise."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
