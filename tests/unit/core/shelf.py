"""An archive for tests of the fold: what an owner would put in a bucket, in a dictionary."""

from __future__ import annotations

from tests.unit.core.log import Log, chain, view
from tests.unit.people.asking import asked, failed

from dalsegno.schemas.control import ArchiveConfirmed, RunRestored
from dalsegno.schemas.outputs import Escalation, Outcome
from dalsegno.streams.core.archived import Idle, Resting
from dalsegno.streams.core.cold import digest_of_parts, pack_parts, unpack_parts
from dalsegno.streams.core.partition import Partition

WHENEVER = Idle(since_ms=1 << 61, due_ms=0)


class Shelf:
    """Chooses runs, keeps what they were, and makes the events that an owner would append."""

    def __init__(self) -> None:
        self.segments: dict[str, dict[str, Resting]] = {}
        self.plans: dict[bytes, list[tuple[bytes, bytes]]] = {}

    def choose(self, partition: Partition, *run_ids: str) -> ArchiveConfirmed | None:
        """Archives those of the runs that may leave; None when none may."""
        resting, _ = partition.archived.split(run_ids or list(partition.run_ids()), WHENEVER)
        if not resting:
            return None
        segment = f"segment-{partition.position}-{len(self.segments)}"
        self.segments[segment] = {each.run_id: each for each in resting}
        for each in resting:
            self.plans[each.plan] = partition.archived.plan_parts(each.plan)
        return ArchiveConfirmed(
            partition=partition.number,
            number=partition.position,
            segment=segment,
            digest=b"",
            first_offset=partition.position,
            last_offset=partition.position,
            run_ids=tuple(each.run_id for each in resting),
            run_digests=tuple(each.digest for each in resting),
        )

    def bring(self, partition: Partition, run_id: str) -> RunRestored:
        """What brings a run back that is in the archive."""
        view = partition.run(run_id)
        assert view is not None
        assert view.archived is not None
        return self.event(view.archived.segment, run_id)

    def event(self, segment: str, run_id: str, *, absent: bool = False) -> RunRestored:
        """The state that a segment has of a run, with its plan if it is for another cluster."""
        found = self.segments[segment][run_id]
        parts, digest = found.parts, found.digest
        if absent:
            parts = pack_parts([*unpack_parts(parts), *self.plans[found.plan]])
            digest = digest_of_parts(parts, 1)
        return RunRestored(
            run_id=run_id, restore_id=segment, parts=parts, digest=digest, absent=absent
        )


def waiting_for_a_person(**fields: object) -> tuple[Log, Escalation]:
    """A run whose first step has failed for good."""
    log = Log()
    log.start(chain(2), context={"in": "x" * 400}, **fields)
    log.began("s0")
    return log, asked(failed(log, "s0"))


def archived(shelf: Shelf, **fields: object) -> tuple[Log, Escalation]:
    """The same, once it is in the archive."""
    log, package = waiting_for_a_person(**fields)
    leave(log, shelf)
    assert view(log).kind == "archived"
    return log, package


def leave(log: Log, shelf: Shelf) -> None:
    log.partition.capture()
    event = shelf.choose(log.partition)
    assert event is not None
    log.put(event)
    assert log.outcomes == [Outcome.APPLIED]
