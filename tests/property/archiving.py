"""Runs that leave for an archive and come back at random moments, in a log that anybody may fold.

Two ways. `ArchivingMachine` appends the owner's events beside all others, and every promise is
checked after each. `Rested` folds a log that has room for them a second time: each run comes back
as soon as it is wanted, and then everything must be as if none had ever left.
"""

from __future__ import annotations

import random
from collections import defaultdict

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.property.digest_of_log import drive
from tests.property.folding import Folding
from tests.property.test_partition_promises import PartitionMachine
from tests.unit.core.shelf import Shelf

from dalsegno.schemas.control import ClockTick, RunRestored
from dalsegno.streams.core.actions import Audit, Escalate, Output, PutAside
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

ROOM = ClockTick(partition=3, number=-1)
"""Takes a place in the log and changes nothing: a tick that is never fresh."""
ROOM_AFTER_EACH = 4

picks = st.integers(0, 2**20)


class ArchivingMachine(PartitionMachine):
    """Runs leave and come back; some restores are late, wrong or repeated."""

    def __init__(self) -> None:
        self.shelf = Shelf()
        super().__init__()

    def put(self, event) -> None:
        outputs = self.promises.append(event)
        if isinstance(event, RunRestored):
            found = [o.action.transition for o in outputs if isinstance(o.action, Audit)]
            offsets = [t.cause_offset for t in found[1:] if not t.cause.startswith("timer:")]
            assert offsets == sorted(offsets), "what waited is applied in another order"

    @rule(pick=picks)
    def runs_leave(self, pick):
        partition = self.promises.folding.partition
        ids = sorted(partition.run_ids())
        event = self.shelf.choose(partition, *ids[pick % 3 :]) if ids else None
        if event is not None:
            self.put(event)

    @rule(pick=picks)
    def runs_are_chosen_and_something_comes_between(self, pick):
        partition = self.promises.folding.partition
        event = self.shelf.choose(partition) if list(partition.run_ids()) else None
        for run_id in event.run_ids if event is not None else ():
            self.information_comes(run_id, f"i{pick}", 0)
        if event is not None:
            self.put(event)

    @rule(pick=picks)
    def a_run_comes_back(self, pick):
        partition = self.promises.folding.partition
        wanted = partition.archived.wanted()
        if wanted:
            self.put(self.shelf.bring(partition, wanted[pick % len(wanted)][0]))

    @rule(pick=picks)
    def an_old_state_is_brought(self, pick):
        segments = sorted(self.shelf.segments)
        if segments:
            name = segments[pick % len(segments)]
            run_id = min(self.shelf.segments[name])
            event = self.shelf.event(name, run_id, absent=False)
            if pick % 3 == 0:
                event = msgspec.structs.replace(event, digest=b"other")
            self.put(event)

    @rule(pick=picks)
    def a_run_is_said_to_be_lost(self, pick):
        wanted = self.promises.folding.partition.archived.wanted()
        if wanted:
            run_id = wanted[pick % len(wanted)][0]
            self.put(
                RunRestored(
                    run_id=run_id, restore_id="x", parts=b"", digest=b"", trouble=f"{pick % 2}"
                )
            )


def archived_log(seed: int, events: int) -> Folding:
    """A random log in which runs leave and come back, and what came of it."""
    rng = random.Random(seed)
    machine = ArchivingMachine()
    machine.runs_start()
    folding = machine.promises.folding
    rules = (
        machine.runs_leave,
        machine.runs_are_chosen_and_something_comes_between,
        machine.a_run_comes_back,
        machine.an_old_state_is_brought,
        machine.a_run_is_said_to_be_lost,
    )
    while len(folding.log) < events:
        drive(machine, rng)
        if rng.random() < 0.4:
            rng.choices(rules, (4, 1, 4, 1, 1))[0](rng.randrange(2**20))
    return folding


class Roomy(PartitionMachine):
    """Leaves room in the log after each event."""

    def put(self, event) -> None:
        super().put(event)
        for _ in range(ROOM_AFTER_EACH):
            super().put(ROOM)


def roomy_log(seed: int, events: int) -> Folding:
    """A random log with room for the events of an archive, and what came of it without one."""
    rng = random.Random(seed)
    machine = Roomy()
    machine.runs_start()
    folding = machine.promises.folding
    while len(folding.log) < events:
        drive(machine, rng)
    return folding


class Rested:
    """The log folded with runs at rest; `by_run`: what came of each run, in order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.shelf = Shelf()
        self.partition = Partition(3)
        self.by_run: dict[str, list[object]] = defaultdict(list)
        self.left = self.back = 0

    def fold(self, log: list[Record]) -> None:
        for record in log:
            if record.event is not ROOM:
                assert self.partition.archived.wanted() == []
            event = self._instead() if record.event is ROOM else None
            if event is not None:
                record = msgspec.structs.replace(record, event=event)
            gather(self.by_run, self.partition.apply(record))
            if self.rng.random() < 0.05:
                self.partition.capture()
        for run_id in sorted(self.partition.run_ids()):
            view = self.partition.run(run_id)
            if view is not None and view.kind == "archived":
                event = self.shelf.bring(self.partition, run_id)
                position, at_ms = self.partition.position, log[-1].at_ms
                gather(self.by_run, self.partition.apply(Record(position, at_ms, b"", b"", event)))

    def _instead(self):
        wanted = self.partition.archived.wanted()
        if wanted:
            self.back += 1
            return self.shelf.bring(self.partition, wanted[0][0])
        ids = sorted(self.partition.run_ids())
        if ids and self.rng.random() < 0.3:
            event = self.shelf.choose(self.partition, *self.rng.sample(ids, 1))
            self.left += event is not None
            return event
        return None


def gather(by_run: dict[str, list[object]], outputs: list[Output]) -> None:
    """Adds what came of each run, without where in the log it stands."""
    for output in outputs:
        action = output.action
        if isinstance(action, Audit):
            found = action.transition
            if found.cause == "RunRestored":
                continue
            if found.cause.startswith("timer:"):
                found = msgspec.structs.replace(found, cause_offset=0)
            by_run[found.run_id].append(found)
        elif isinstance(action, Escalate):
            package = msgspec.structs.replace(action.escalation, offset=0)
            by_run[package.run_id].append(package)
        elif isinstance(action, PutAside):
            by_run[action.letter.run_id].append(action)
        else:
            body = getattr(action, "handoff", None) or getattr(action, "answer", None) or action
            by_run[getattr(body, "run_id", "")].append(body)
