"""The client: starts runs, reports on them, asks about them, stops and resumes them."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import overload

from dalsegno.schemas.blob import Blob
from dalsegno.schemas.events import (
    AttemptEvent,
    InformationSupplied,
    RunCancelled,
    RunEvent,
    RunPaused,
    RunResumed,
    RunStarted,
)
from dalsegno.schemas.outputs import Answer, RunState
from dalsegno.schemas.partitioner import partition_for
from dalsegno.schemas.values import Value
from dalsegno.streams.client.advice import Advice
from dalsegno.streams.client.answers import AnswerReader, reply_address
from dalsegno.streams.client.blobs import Blobs
from dalsegno.streams.client.clocks import Clocks
from dalsegno.streams.client.config import ClientConfig, Security
from dalsegno.streams.client.directory import Directory
from dalsegno.streams.client.durations import Duration, to_s
from dalsegno.streams.client.ending import Ending
from dalsegno.streams.client.engines import Engines, Place
from dalsegno.streams.client.errors import DeliveryFailed, ReportRefused
from dalsegno.streams.client.event_encoder import EventEncoder
from dalsegno.streams.client.flow import Flow
from dalsegno.streams.client.fork import ForkGuard
from dalsegno.streams.client.offsets import LastOffsets
from dalsegno.streams.client.outcomes import Outcomes, RunResult
from dalsegno.streams.client.plan_parts import in_parts
from dalsegno.streams.client.producer import OutRecord, Producer, Receipt
from dalsegno.streams.client.report import Report
from dalsegno.streams.client.reported import ReportedSteps
from dalsegno.streams.client.reporter import Reporter
from dalsegno.streams.client.request_ids import Request, RequestIds, new_run_id
from dalsegno.streams.client.run_values import RunValues
from dalsegno.streams.client.schema import ContextSchema
from dalsegno.streams.client.views import RunVersion, RunView
from dalsegno.streams.client.writing import set_operations

_LOG = logging.getLogger("dalsegno.client")
_OUTCOMES_MAX = 100_000  # runs whose answers are remembered until somebody asks


class Client:
    """Thread-safe; one per process is enough. Every call that sends returns when the log has it.

    Raises, from every such call: `DeliveryFailed` (the outcome is unknown; repeat the same call),
    `QueueFull` (nothing was sent), `ForkedError` after a fork, `ClosedError`.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | None = None,
        prefix: str | None = None,
        security: Security | None = None,
        name: str | None = None,
        config: ClientConfig | None = None,
    ) -> None:
        """`name` says who reports; by default host and process. Raises `SettingsError` without a
        broker.
        """
        self._config = config or ClientConfig.resolve(bootstrap_servers, prefix, security)
        self._timeout_s = self._config.delivery_timeout_ms / 1_000
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._producer = Producer(self._config, self.name)
        self._guard = ForkGuard()
        clocks, topics = Clocks(), self._config.topics
        self._encode = EventEncoder(self._config.registry)
        self._reporter = Reporter(
            topics.events, self.name, reply_address(self.name), clocks, self._encode
        )
        self._under_way = ReportedSteps(self._producer, topics.heartbeats, self.name, clocks)
        self._outcomes = Outcomes(_OUTCOMES_MAX)
        self._engines = Engines(Directory(self._config, self.name))
        self._advice = Advice(self._engines)
        self._blobs = Blobs(self._engines, from_bytes=self._config.blobs_from_bytes)
        self._written = LastOffsets(_OUTCOMES_MAX)
        self._ids = RequestIds()
        self._lock = threading.Lock()
        self._answers: AnswerReader | None = None
        self._partitions = 0
        self._at_exit = weakref.finalize(
            self, _flush_at_exit, self._producer, self._timeout_s, self._under_way
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(
        self,
        flow: Flow,
        inputs: Mapping[str, object],
        *,
        run_id: str | None = None,
        traceparent: str = "",
        risk_flags: Iterable[str] = (),
        timeout: Duration | None = None,
    ) -> str:
        """Start a run with its first context. Returns its id, by default one of 32 hex digits.

        The same id with the same flow and inputs is the same start, however often it is sent.
        `traceparent` (W3C) goes along to every handoff. Whether the service accepts the start,
        `wait` tells, or `timeout`, which is for the answer and all parts of a large plan, counted
        from the call: it raises `RunRefused`, or `WaitTimeout` (the start stands). It does not
        shorten the delivery, which ends in `DeliveryFailed` after `delivery_timeout_ms` (30 s).
        Raises `FlowError`, `ValueRefusedError` for inputs that no context holds, `FieldRefused`
        for those that are not what the flow's context schema says.
        """
        started, began_s = run_id or new_run_id(), time.monotonic()
        given_s = None if timeout is None else to_s(timeout, "timeout")
        self.start_many(flow, {started: inputs}, traceparent=traceparent, risk_flags=risk_flags)
        if given_s is not None:
            left_s = given_s - (time.monotonic() - began_s)
            self._outcomes.wait_started(started, max(0.0, left_s), given_s)
        return started

    def start_many(
        self,
        flow: Flow,
        runs: Mapping[str, Mapping[str, object]],
        *,
        traceparent: str = "",
        risk_flags: Iterable[str] = (),
    ) -> list[str]:
        """Start a run for each id and its inputs; as `start`, but waits once for all of them."""
        self._connect()
        plan = flow.plan()
        schema = flow.schema
        flags = tuple(risk_flags)
        records: list[OutRecord] = []
        for run_id, inputs in runs.items():
            if schema is not None:
                schema.check_start(inputs)
            started = RunStarted(
                run_id=run_id,
                flow=flow.name,
                flow_version=flow.version,
                plan=plan,
                context=self._values(run_id).first(inputs, flow.secrets),
                context_schema="" if schema is None else schema.name,
                context_schema_version=1 if schema is None else schema.version,
                ttl_ms=flow.ttl_ms,
                risk_flags=flags,
            )
            parts = list(in_parts(self._reporter.stamp(started)))
            self._outcomes.begin(run_id, len(parts))
            records.extend(self._record(part, traceparent) for part in parts)
        receipts = self._producer.deliver_all(records, self._timeout_s)
        for record, receipt in zip(records, receipts, strict=True):
            self._written.note(record.key, receipt.offset)
        return list(runs)

    def wait(self, run_id: str, timeout: Duration = "60s") -> RunResult:
        """Wait for the end of a run, whoever started it.

        The end of a run that this client has started is told to it; of any other an engine is
        asked, again and again while none answers. Raises `RunRefused` if the service refused the
        start, `ReportRefused` if this client only reported on the run and was refused, `UnknownRun`
        if the log holds no such run at the time of the call, `WaitTimeout`.
        """
        self._connect()
        ending = Ending(self._place(run_id), self._outcomes, self._engines)
        return ending.wait(to_s(timeout, "timeout"))

    @overload
    def query(self, run_id: str, *, timeout: Duration = "10s") -> RunView: ...
    @overload
    def query(self, run_id: str, *, version: int, timeout: Duration = "10s") -> RunVersion: ...
    def query(
        self, run_id: str, *, version: int | None = None, timeout: Duration = "10s"
    ) -> RunView | RunVersion:
        """A run as its partition's owner holds it: live, ended, or refused (`view.refusal`).

        With `version`, a live run as it was then. Whatever this client has written about it before
        is in the view. An engine that is restoring or cannot be reached is asked again in the time.
        Raises `UnknownRun` if the log holds no such run now, `VersionNotKept`, `EngineUnavailable`.
        """
        self._connect()
        place, timeout_s = self._place(run_id), to_s(timeout, "timeout")
        if version is not None:
            return self._engines.version(place, version, timeout_s)
        return self._engines.run(place, timeout_s)

    def runs(
        self,
        *,
        state: RunState | None = None,
        flow: str = "",
        limit: int = 100,
        timeout: Duration = "10s",
    ) -> list[RunView]:
        """Runs of all partitions that the engines hold, at most `limit` (1 to 1,000), in no order.

        Engines that do not answer are left out; each looks at 20,000 of its runs at most. Raises
        `EngineUnavailable` if none answers, `SettingsError`.
        """
        self._guard.check()
        return self._engines.runs(state, flow, limit, to_s(timeout, "timeout"))

    def result(self, run_id: str) -> RunResult | None:
        """The end of a run that this client has started, if it is known by now; never waits."""
        return self._outcomes.ended(run_id)

    def report(
        self, run_id: str, *, attempt: int = 1, schema: ContextSchema | None = None
    ) -> Report:
        """Reports of a service that drives its steps by itself, under its own attempt number.

        The client sends heartbeats for each step from its start to its end, or until `close`.
        With `schema`, what is written is checked against it, and of its version.
        """
        self._connect()

        def send(event: AttemptEvent) -> Receipt:
            try:
                self._outcomes.check_report(event.run_id, event.step, event.attempt)
            except ReportRefused:
                self._under_way.remove(event.run_id, event.step, event.attempt)
                raise
            receipt = self._send(event)
            self._outcomes.reported(event.run_id, event.step, event.attempt, receipt.offset)
            return receipt

        return Report(run_id, attempt, send, self.name, self._under_way, schema=schema)

    def may_call(self, dependency: str, *, timeout: Duration = "2s") -> bool:
        """Whether a service that drives itself may call a dependency now: not while its breaker is
        open, nor while a step that waits for it is its probe. Nobody holds such a call back but the
        service itself; report its failures, and begin it with `started`.

        The engines are asked at most once a second. Raises `EngineUnavailable`, `SettingsError`.
        """
        self._guard.check()
        return self._advice.may_call(dependency, to_s(timeout, "timeout"))

    def pause(self, run_id: str, reason: str = "", *, timeout: Duration | None = None) -> None:
        """No further step is dispatched until `resume`. With `timeout`, waits for the answer.

        Raises `ReportRefused`, `WaitTimeout` (the request stands all the same).
        """
        self._request(RunPaused(run_id=run_id, request_id="", reason=reason), timeout)

    def resume(self, run_id: str, reason: str = "", *, timeout: Duration | None = None) -> None:
        """A paused run goes on; as `pause`."""
        self._request(RunResumed(run_id=run_id, request_id="", reason=reason), timeout)

    def cancel(self, run_id: str, reason: str = "", *, timeout: Duration | None = None) -> None:
        """The run ends as cancelled; attempts under way are told to stop; as `pause`."""
        self._request(RunCancelled(run_id=run_id, request_id="", reason=reason), timeout)

    def supply(
        self,
        run_id: str,
        fields: Mapping[str, object],
        *,
        origin: str,
        schema: ContextSchema | None = None,
        information_id: str | None = None,
        expected_run_version: int | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Give context fields that a run is missing. `origin` says where the facts come from.

        One-shot by `information_id`; with `expected_run_version` refused if the run has moved on.
        With `schema` they are of its version: raises `FieldRefused` for what that does not allow.
        Without, a field keeps the version that it has.
        """
        self._connect()
        event = InformationSupplied(
            run_id=run_id,
            information_id=information_id or "",
            ops=set_operations(self._values(run_id).given(fields), schema),
            origin=origin,
            expected_run_version=expected_run_version,
            context_schema_version=0 if schema is None else schema.version,
        )
        self._request(event, timeout)

    def keep(self, run_id: str, value: object) -> Blob:
        """Keep a large value for a run, and get what stands for it: to be handed to `supply`, or
        to the `completed` of a report, well within half the engines' `DALSEGNO_BLOB_GRACE_MS`.
        The same value is kept once.

        Raises `BlobStoreUnavailable` after the delivery timeout, `BlobRefused`, `SettingsError`.
        """
        self._connect()
        return self._values(run_id).keep(value)

    def read(self, run_id: str, value: Value) -> Value:
        """A value of the run's context with every blob in it read and verified.

        Raises `BlobMissing`, `BlobCorrupt`, `BlobStoreUnavailable`.
        """
        self._connect()
        return self._values(run_id).whole(value)

    def flush(self, timeout: Duration | None = None) -> int:
        """Wait until everything is acknowledged or failed. Returns how many records are not."""
        return self._producer.flush(
            self._timeout_s if timeout is None else to_s(timeout, "timeout")
        )

    def close(self) -> None:
        """Flush and stop. Raises `DeliveryFailed` if records were not acknowledged. May be
        repeated.
        """
        if self._guard.forked:
            return
        self._at_exit.detach()
        self._under_way.close()
        with self._lock:
            answers, self._answers = self._answers, None
        if answers is not None:
            answers.close()
        self._engines.close()
        if left := self._producer.close(self._timeout_s):
            raise DeliveryFailed(
                self._config.topics.events, b"", "_TIMED_OUT", f"{left} records not acknowledged"
            )

    def _connect(self) -> None:
        """Before the first record that asks for an answer: the reading position stands."""
        self._guard.check()
        with self._lock:
            if self._answers is None:
                self._encode.prepare()
                topics = self._config.topics
                control = self._producer.partition_count(topics.control)
                self._partitions = self._producer.partition_count(topics.events)
                self._answers = AnswerReader(
                    self._config,
                    self._reporter.reply_to,
                    control,
                    partial(_told, self._outcomes, self._under_way),
                )

    def _request(self, event: Request, timeout: Duration | None) -> None:
        self._connect()
        kind = type(event).__name__
        self._outcomes.forget_reply(event.run_id, kind)
        self._send(self._ids.named(event))
        self._ids.sent(event)
        if timeout is not None:
            self._outcomes.wait_reply(event.run_id, kind, to_s(timeout, "timeout"))

    def _send(self, event: RunEvent) -> Receipt:
        record = self._record(self._reporter.stamp(event))
        receipt = self._producer.deliver(record, self._timeout_s)
        self._written.note(record.key, receipt.offset)
        return receipt

    def _values(self, run_id: str) -> RunValues:
        return RunValues(self._blobs, partition_for(run_id, self._partitions), self._timeout_s)

    def _place(self, run_id: str) -> Place:
        partition = partition_for(run_id, self._partitions)
        return Place(run_id, partition, self._written.of(run_id.encode()))

    def _record(self, event: RunEvent, trace: str = "") -> OutRecord:
        partition = partition_for(event.run_id, self._partitions)
        return self._reporter.record(event, partition, trace)


def _told(outcomes: Outcomes, under_way: ReportedSteps, answer: Answer, offset: int) -> None:
    """Not a method: the reader's thread must not keep a client that was dropped."""
    if outcomes.tell(answer, offset):
        under_way.tell(answer)


def _flush_at_exit(producer: Producer, timeout_s: float, under_way: ReportedSteps) -> None:
    """The process ends, or the client was dropped, unclosed: nothing that was queued is lost."""
    # This may run in the middle of any thread, the heartbeats' own too: it does not wait for them.
    under_way.close(wait=False)
    if left := producer.close(timeout_s):
        _LOG.error("%d records were not acknowledged at exit", left)
