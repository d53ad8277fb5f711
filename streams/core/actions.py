"""Outputs of the fold, as values. The engine turns each into one Kafka record.

Channels whose order matters (`queue.*`, `transitions`, `escalations`, `dead-letters`) go to the
partition of the same number as their source. `control` and `faults` go by another key and are
idempotent by sequence.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from dalsegno.schemas.control import FaultPointChanged, QuotaGranted
from dalsegno.schemas.outputs import (
    Answer,
    DeadLetter,
    Escalation,
    FaultReport,
    Handoff,
    Transition,
)
from dalsegno.streams.core.sequence import Sequence


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """Give a step to the workers of a queue. `trace` is the run's W3C traceparent, or empty."""

    queue: str
    handoff: Handoff
    trace: str = ""

    @property
    def channel(self) -> str:
        return "queue." + self.queue


class Reply(msgspec.Struct, frozen=True, gc=False):
    """Tell a worker or client what became of its report."""

    answer: Answer
    channel: ClassVar[str] = "control"


class Audit(msgspec.Struct, frozen=True, gc=False):
    """Put a transition on record."""

    transition: Transition
    channel: ClassVar[str] = "transitions"


class Escalate(msgspec.Struct, frozen=True, gc=False):
    """Ask a person."""

    escalation: Escalation
    channel: ClassVar[str] = "escalations"


class ReportFault(msgspec.Struct, frozen=True, gc=False):
    """Tell a fault point's actor what was seen."""

    report: FaultReport
    channel: ClassVar[str] = "faults"


class Instruct(msgspec.Struct, frozen=True, gc=False):
    """Append a control event to the events: how a fault point's actor speaks to a partition."""

    event: FaultPointChanged | QuotaGranted
    channel: ClassVar[str] = "events"


class PutAside(msgspec.Struct, frozen=True, gc=False):
    """Dead-letter a record: its original key, value and headers, with the reason."""

    letter: DeadLetter
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]
    channel: ClassVar[str] = "dead-letters"


Action = Dispatch | Reply | Audit | Escalate | ReportFault | Instruct | PutAside


class Output(msgspec.Struct, frozen=True, gc=False):
    """An action with its sequence."""

    sequence: Sequence
    action: Action
