"""What a step's body raises to say how its run may go on: the return contract as exceptions.

Any other exception counts as `transient`, with its class as the error class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from dalsegno.schemas.events import FailureType
from dalsegno.streams.client.durations import Duration, to_ms

_MESSAGE_CHARS_MAX = 2_000  # enough to understand; a report must never be too large to send


class StepFailure(Exception):  # noqa: N818 - the subclasses name outcomes
    """An attempt failed. `advice` is a sentence for whoever decides; the plan's policy decides."""

    failure_type: ClassVar[FailureType] = FailureType.TRANSIENT

    def __init__(
        self,
        message: str = "",
        *,
        advice: str = "",
        risk_flags: Iterable[str] = (),
        error_class: str = "",
    ) -> None:
        super().__init__(message)
        self.advice = advice
        self.risk_flags = tuple(risk_flags)
        self.error_class = error_class


class Transient(StepFailure):
    """May work next time. `retry_after` is honoured, up to the policy's bound."""

    def __init__(
        self, message: str = "", *, retry_after: Duration | None = None, advice: str = ""
    ) -> None:
        super().__init__(message, advice=advice)
        self.retry_after_ms = None if retry_after is None else to_ms(retry_after, "retry_after")


class DependencyDown(StepFailure):
    """The service `name` is not to be had: counts against it, not against the step."""

    failure_type = FailureType.DEPENDENCY

    def __init__(
        self, name: str, retry_after: Duration | None = None, *, message: str = "", advice: str = ""
    ) -> None:
        super().__init__(message or f"{name} is not available", advice=advice)
        self.dependency = name
        self.retry_after_ms = None if retry_after is None else to_ms(retry_after, "retry_after")


class MissingInfo(StepFailure):
    """The named context fields are missing or not usable: the supplying step or a person gives
    them.
    """

    failure_type = FailureType.MISSING_INFO

    def __init__(self, fields: Iterable[str], message: str = "", *, advice: str = "") -> None:
        self.fields = (fields,) if isinstance(fields, str) else tuple(fields)
        super().__init__(message or f"missing: {', '.join(self.fields)}", advice=advice)


class Invalid(StepFailure):
    """The inputs contradict each other or the rules: the same inputs will never do."""

    failure_type = FailureType.INVALID


class Permanent(StepFailure):
    """Will not work however often it is tried."""

    failure_type = FailureType.PERMANENT


class Unsafe(StepFailure):
    """Going on could do damage: a person must look, at once."""

    failure_type = FailureType.UNSAFE


class UndeclaredRead(Invalid):
    """The body read a field that its step does not declare in `reads`."""

    def __init__(self, step: str, field: str, declared: Iterable[str]) -> None:
        self.field = field
        super().__init__(
            f"step {step!r} reads {field!r}, which it does not declare (reads: "
            f"{', '.join(declared) or 'none'})"
        )


class UndeclaredWrite(Invalid):
    """The body returned a field that its step does not declare in `writes` or `may_write`."""

    def __init__(self, step: str, field: str, declared: Iterable[str]) -> None:
        self.field = field
        super().__init__(
            f"step {step!r} returned {field!r}, which it does not declare (writes: "
            f"{', '.join(declared) or 'none'})"
        )


class StepStopped(asyncio.CancelledError):
    """The attempt must stop: superseded, cancelled, or the worker's lease ran out.

    Not an `Exception`, so that a body's own error handling does not swallow it.
    """


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of `StepFailed` that an exception decides. `retry_after_ms` is in milliseconds."""

    failure_type: FailureType
    error_class: str
    message: str
    missing_fields: tuple[str, ...] = ()
    advice: str = ""
    retry_after_ms: int | None = None
    dependency: str = ""
    risk_flags: tuple[str, ...] = ()


def _text(value: object) -> str:
    """Bounded, and free of lone surrogates, which no encoding carries."""
    return str(value)[:_MESSAGE_CHARS_MAX].encode(errors="replace").decode()


def report_of(error: BaseException) -> FailureReport:
    """The typed mapping from what a body raised to the return contract."""
    cls = type(error)
    name = cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    if not isinstance(error, StepFailure):
        return FailureReport(
            failure_type=FailureType.TRANSIENT, error_class=name, message=_text(error)
        )
    return FailureReport(
        failure_type=error.failure_type,
        error_class=error.error_class or name,
        message=_text(error),
        missing_fields=error.fields if isinstance(error, MissingInfo) else (),
        advice=_text(error.advice),
        retry_after_ms=error.retry_after_ms
        if isinstance(error, Transient | DependencyDown)
        else None,
        dependency=error.dependency if isinstance(error, DependencyDown) else "",
        risk_flags=error.risk_flags,
    )
