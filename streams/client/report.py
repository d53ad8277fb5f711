"""Reports of a service that drives its steps by itself, under its own attempt number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import cast

from dalsegno.schemas import values
from dalsegno.schemas.events import (
    AttemptEvent,
    EffectConfirmed,
    EffectIntended,
    FailureType,
    StepCompleted,
    StepFailed,
    StepProgressed,
    StepStarted,
)
from dalsegno.schemas.values import Value
from dalsegno.streams.client.failures import StepFailure, report_of
from dalsegno.streams.client.producer import Receipt
from dalsegno.streams.client.reported import Reported, ReportedSteps
from dalsegno.streams.client.schema import ContextSchema
from dalsegno.streams.client.writing import set_operations
from dalsegno.streams.core.effects import effect_key, recovery_key

Send = Callable[[AttemptEvent], Receipt]
"""Stamps, sends and waits for the acknowledgement; raises what an earlier report was refused
with.
"""


class Report:
    """What a service says about one run. Every call returns when the log has it.

    `attempt` only grows: a service that tries a step again reports with a higher number, and a
    lower one is superseded. Raises `DeliveryFailed` (repeat the call), and `ReportRefused` if an
    earlier report of the step, of the same attempt, was refused or superseded meanwhile: stop
    working on it.

    From `started` to `completed` or `failed` the client sends heartbeats for the step. Use the
    report in a `with` block: a step that its body left open then sends none any more.
    """

    def __init__(
        self,
        run_id: str,
        attempt: int,
        send: Send,
        source: str,
        under_way: ReportedSteps,
        *,
        schema: ContextSchema | None = None,
    ) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self._send = send
        self._source = source
        self._under_way = under_way
        self._schema = schema
        self._steps: dict[str, Reported] = {}

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing is reported: whoever leaves a step open is found silent, as if it had died."""
        for step in self._steps:
            self._under_way.remove(self.run_id, step, self.attempt)

    def started(self, step: str) -> Receipt:
        """The step begins, and with it its heartbeats."""
        receipt = self._send(
            StepStarted(
                run_id=self.run_id, step=step, epoch=0, attempt=self.attempt, worker=self._source
            )
        )
        self._under_way.add(self._of(step), receipt.partition)
        return receipt

    def progress(self, step: str = "") -> None:
        """The step moves on, or without a name each one of this report; goes along with the next
        heartbeat.
        """
        for each in (self._of(step),) if step else tuple(self._steps.values()):
            each.progress += 1

    def progressed(self, step: str, *, save: object = None) -> Receipt:
        """The step moves on; `save`, if given, is what its next attempt should know."""
        reported = self._of(step)
        reported.progress += 1
        return self._send(
            StepProgressed(
                run_id=self.run_id,
                step=step,
                epoch=0,
                attempt=self.attempt,
                progress=reported.progress,
                save=None if save is None else values.pack(cast(Value, save)),
            )
        )

    def completed(
        self,
        step: str,
        outputs: Mapping[str, object] | None = None,
        *,
        expected_run_version: int | None = None,
        risk_flags: Iterable[str] = (),
    ) -> Receipt:
        """The step is done; `outputs` holds a value for each field that it writes.

        Raises `FieldRefused` for what the report's schema does not allow.
        """
        schema = self._schema
        return self._end(
            StepCompleted(
                run_id=self.run_id,
                step=step,
                epoch=0,
                attempt=self.attempt,
                ops=set_operations(outputs or {}, schema),
                expected_run_version=expected_run_version,
                risk_flags=tuple(risk_flags),
                progress=self._of(step).progress,
                context_schema_version=0 if schema is None else schema.version,
            )
        )

    def failed(self, step: str, error: BaseException | FailureType, message: str = "") -> Receipt:
        """The step failed: an exception (see `failures` for the mapping), or a failure type with
        a text.
        """
        failure = report_of(error if isinstance(error, BaseException) else StepFailure(message))
        named = error if isinstance(error, FailureType) else failure.failure_type
        return self._end(
            StepFailed(
                run_id=self.run_id,
                step=step,
                epoch=0,
                attempt=self.attempt,
                failure_type=named,
                error_class=failure.error_class if isinstance(error, BaseException) else "",
                message=message or failure.message,
                missing_fields=failure.missing_fields,
                advice=failure.advice,
                retry_after_ms=failure.retry_after_ms,
                dependency=failure.dependency,
                risk_flags=failure.risk_flags,
                progress=self._of(step).progress,
            )
        )

    def effect(
        self,
        step: str,
        name: str,
        *,
        occurrence: int = 0,
        undo: str = "",
        undo_input: object = None,
    ) -> EffectReport:
        """An effect is about to be done: durable on return. Confirm it with `confirm` once it is
        done.
        """
        key = effect_key(recovery_key(self.run_id, step), name, occurrence)
        self._send(
            EffectIntended(
                run_id=self.run_id,
                step=step,
                epoch=0,
                attempt=self.attempt,
                effect=name,
                occurrence=occurrence,
                key=key,
                undo=undo,
                undo_input=b"" if undo_input is None else values.pack(cast(Value, undo_input)),
            )
        )
        return EffectReport(self, step, name, occurrence, key)

    def confirm(self, effect: EffectReport, result: object) -> Receipt:
        """The effect was done, with this result."""
        return self._send(
            EffectConfirmed(
                run_id=self.run_id,
                step=effect.step,
                epoch=0,
                attempt=self.attempt,
                effect=effect.name,
                occurrence=effect.occurrence,
                result=values.pack(cast(Value, result)),
            )
        )

    def _end(self, event: StepCompleted | StepFailed) -> Receipt:
        """While the end is not in the log, the attempt goes on: the caller may repeat it."""
        receipt = self._send(event)
        self._under_way.remove(self.run_id, event.step, self.attempt)
        return receipt

    def _of(self, step: str) -> Reported:
        """The step's attempt; the same for every report of this client on it."""
        found = self._steps.get(step)
        if found is None:
            found = self._under_way.find(self.run_id, step, self.attempt) or Reported(
                self.run_id, step, self.attempt
            )
            self._steps[step] = found
        return found


class EffectReport:
    """An effect that was announced. `key` is its idempotency key, the same in every attempt."""

    def __init__(self, report: Report, step: str, name: str, occurrence: int, key: str) -> None:
        self._report = report
        self.step = step
        self.name = name
        self.occurrence = occurrence
        self.key = key

    def confirm(self, result: object = None) -> Receipt:
        """It was done, with this result; durable on return."""
        return self._report.confirm(self, result)
