"""Deliberate bugs of the core's bookkeeping: counts, waiting events, restores, verdicts, rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
from tests.simulation.core_mutants import everywhere
from tests.simulation.mutants import Mutant, replaced
from tests.simulation.upgrade import NEW_CODE, Upgrade

from dalsegno.schemas.control import StallSuspected
from dalsegno.schemas.events import StepCompleted
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core import journal, verdicts
from dalsegno.streams.core.arrivals import Arrivals
from dalsegno.streams.core.controls import Controls
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.firing import Firing
from dalsegno.streams.core.moment import Ruling
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.units import Units


def outcome_counted_twice() -> Any:
    """A completion is counted when it is applied and once more."""
    right = Partition.apply

    def apply(self: Partition, record: Any) -> Any:
        outputs = right(self, record)
        if isinstance(record.event, StepCompleted):
            self._arrivals.counts[Outcome.APPLIED] += 1
        return outputs

    return replaced(Partition, "apply", apply)


def early_events_dropped() -> Any:
    """What waited for its run is counted and forgotten."""

    def deliver(self: Arrivals, waiting: list[Any]) -> None:
        self.waiting -= len(waiting)
        self.counts[Outcome.DUPLICATE] += len(waiting)

    return replaced(Arrivals, "deliver", deliver)


def no_quarantine() -> Any:
    """A run on which the fold raised goes on as if nothing had happened."""

    def raised(self: Units, draft: Draft, unit: str, error: Exception) -> Ruling:
        draft.discard()
        self._now.outbox.rollback(draft.mark)
        draft.run.head.quarantine = unit
        return Ruling(Outcome.DEAD_LETTERED, "apply_raised", f"{unit}: {error!r}")

    return replaced(Units, "_raised", raised)


def deadlines_fire_late() -> Any:
    """A deadline fires after the event that passed it."""
    right = Firing.fire

    def fire(self: Firing) -> None:
        clock = self._now.clock
        log_ms, live_ms = clock.log_ms, clock.live_ms
        clock.log_ms, clock.live_ms = getattr(self, "before", (log_ms, live_ms))
        right(self)
        clock.log_ms, clock.live_ms = log_ms, live_ms
        self.__dict__["before"] = (log_ms, live_ms)

    return replaced(Firing, "fire", fire)


def counter_not_restored() -> Any:
    """The dense counts start again after a restore."""
    right = Partition._load

    def load(self: Partition, data: bytes) -> None:
        right(self, data)
        self._now.outbox.counts = {}

    return replaced(Partition, "_load", load)


def restore_drops(kind: bytes) -> Any:
    """A restore loses the parts of one kind."""
    right = Partition.restore.__func__

    def restore(cls: Any, number: int, parts: Any, **named: Any) -> Any:
        return right(cls, number, [part for part in parts if part[0][:1] != kind], **named)

    return replaced(Partition, "restore", classmethod(restore))


def verdict_with(**fields: Any) -> Any:
    """Part of a verdict's evidence is not looked at."""
    right = verdicts.stall_suspected

    def stall_suspected(draft: Draft, event: StallSuspected) -> Any:
        found = {"heartbeats_at_ms": draft.now.log_ms, "events_offset": 1 << 60}
        trusted = {name: found[name] for name in fields}
        return right(draft, msgspec.structs.replace(event, **trusted))

    return everywhere(right, stall_suspected)


def late_confirmation_dropped() -> Any:
    """The confirmation of a superseded attempt is not kept."""
    right = journal.effect_confirmed

    def effect_confirmed(draft: Draft, event: Any) -> Any:
        ruling = right(draft, event)
        return msgspec.structs.replace(ruling, keeps=False) if ruling.keeps else ruling

    return everywhere(right, effect_confirmed)


@contextmanager
def marker_ahead_of_code() -> Iterator[None]:
    """Rules are activated first, and code that does not know them goes on."""
    init = Controls.__init__

    def roll(self: Upgrade) -> Any:
        yield from self.activate()
        yield from self.replace_code()
        self.done = True

    def know(self: Controls, now: Any, known: Any) -> None:
        init(self, now, NEW_CODE)

    with patch.object(Upgrade, "roll", roll), patch.object(Controls, "__init__", know):
        yield


STATE_MUTANTS = (
    Mutant("outcome counted twice", outcome_counted_twice),
    Mutant("early events dropped", early_events_dropped),
    Mutant("run goes on although the fold raised", no_quarantine),
    Mutant("deadline fires after the event", deadlines_fire_late),
    Mutant("counter not restored", counter_not_restored),
    Mutant("journal not restored", lambda: restore_drops(b"j")),
    Mutant("waiting events not restored", lambda: restore_drops(b"w")),
    Mutant("context not restored", lambda: restore_drops(b"c")),
    Mutant("verdict's age unchecked", lambda: verdict_with(heartbeats_at_ms=0)),
    Mutant("verdict's offset unchecked", lambda: verdict_with(events_offset=0)),
    Mutant("confirmation of a superseded attempt dropped", late_confirmation_dropped),
    Mutant("rules activated ahead of the code", marker_ahead_of_code),
)
