"""Reports of a service that drives its steps by itself, under its own attempt number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from dalsegno.streams.core.effects import effect_key, recovery_key

Send = Callable[[AttemptEvent], Receipt]
"""Stamps, sends and waits for the acknowledgement; raises what an earlier report was refused
with.
"""


class Report:
    """What a service says about one run. Every call returns when the log has it.

    `attempt` only grows: a service that tries a step again reports with a higher number, and a
    lower one is superseded. Raises `DeliveryFailed` (repeat the call), and `ReportRefused` if an
    earlier report of the step was refused or superseded meanwhile: stop working on it.
    """

    def __init__(self, run_id: str, attempt: int, send: Send, source: str) -> None:
        self.run_id = run_id
        self.attempt = attempt
        self._send = send
        self._source = source
        self._progress: dict[str, int] = {}

    def started(self, step: str) -> Receipt:
        """The step begins."""
        return self._send(
            StepStarted(
                run_id=self.run_id, step=step, epoch=0, attempt=self.attempt, worker=self._source
            )
        )

    def progressed(self, step: str, *, save: object = None) -> Receipt:
        """The step moves on; `save`, if given, is what its next attempt should know."""
        count = self._progress[step] = self._progress.get(step, 0) + 1
        return self._send(
            StepProgressed(
                run_id=self.run_id,
                step=step,
                epoch=0,
                attempt=self.attempt,
                progress=count,
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
        """The step is done; `outputs` holds a value for each field that it writes."""
        ops: list[Value] = [
            ["set", [field], cast(Value, value)] for field, value in (outputs or {}).items()
        ]
        return self._send(
            StepCompleted(
                run_id=self.run_id,
                step=step,
                epoch=0,
                attempt=self.attempt,
                ops=values.pack(ops),
                expected_run_version=expected_run_version,
                risk_flags=tuple(risk_flags),
                progress=self._progress.get(step, 0),
            )
        )

    def failed(self, step: str, error: BaseException | FailureType, message: str = "") -> Receipt:
        """The step failed: an exception (see `failures` for the mapping), or a failure type with
        a text.
        """
        failure = report_of(error if isinstance(error, BaseException) else StepFailure(message))
        named = error if isinstance(error, FailureType) else failure.failure_type
        return self._send(
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
                progress=self._progress.get(step, 0),
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
