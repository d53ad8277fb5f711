"""Runs that leave for the archive, and come back.

Both by an event in the log, and the fold alone decides: a run leaves if its parts are still those
that the segment holds, and comes back if what is brought is what left. When the owner chose a run,
and when a fetch from the archive ended, is in no log, so nothing depends on it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from dalsegno.schemas.control import ArchiveConfirmed, RunRestored
from dalsegno.schemas.outputs import Escalation, Outcome
from dalsegno.streams.core.actions import Escalate
from dalsegno.streams.core.arrivals import Arrivals
from dalsegno.streams.core.capturing import Held
from dalsegno.streams.core.cold import (
    Cold,
    cold_of,
    is_digest_of,
    layout_of,
    may_rest,
    unpack_parts,
)
from dalsegno.streams.core.cold_absent import Foreign, read_foreign, take_in
from dalsegno.streams.core.controls import RulesUnknown
from dalsegno.streams.core.layouts import LAYOUTS, NotInLayout, packed_run, parts_as
from dalsegno.streams.core.moment import APPLIED, Moment, Ruling, duplicate, refused
from dalsegno.streams.core.names import DETAIL_CHARS_MAX, ID_CHARS_MAX, name_fault
from dalsegno.streams.core.notice import notice
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import Run, Stub
from dalsegno.streams.core.state_codec import KIND_RUN, read_prefix
from dalsegno.streams.core.units import Units
from dalsegno.streams.core.warm import PackedRun

TIMER: Final = "timer"


class ColdRuns:
    """See above. `stayed` counts runs that had changed when their segment was confirmed."""

    def __init__(self, now: Moment, runs: Runs, units: Units, arrivals: Arrivals) -> None:
        self._now = now
        self._runs = runs
        self._units = units
        self._arrivals = arrivals
        self.stayed = 0
        self._back: dict[str, int] = {}

    def confirmed(self, event: ArchiveConfirmed) -> None:
        """Those of the runs leave that are still as the segment has them. Raises `RulesUnknown`."""
        for digest in event.run_digests:
            self._known(digest)
        for run_id, digest in zip(event.run_ids, event.run_digests, strict=True):
            self.stayed += not self._leaves(run_id, digest, event.segment)

    def _leaves(self, run_id: str, digest: bytes, segment: str) -> bool:
        packed = self.parts_of(run_id, digest)
        if packed is None:
            return False
        run = self._runs.get(run_id)
        # Who chose it had the same bytes before him; the fold believes nobody.
        if not isinstance(run, Run) or not may_rest(run):
            return False
        self._runs.archive(run, cold_of(run, segment, packed, digest, self._now.log_ms))
        return True

    def parts_of(self, run_id: str, digest: bytes) -> bytes | None:
        """A run that is not in the archive, as one value; None if a digest is of another state."""
        held = self._runs.near(run_id)
        if held is None or not _is_run(held):
            return None
        try:
            packed = packed_run(layout_of(digest), run_id, held)
        except NotInLayout:
            return None
        return packed if is_digest_of(digest, packed) else None

    def back_since(self, since_ms: int) -> dict[str, int]:
        """Runs that came back after this time, as far as is known: it is forgotten at a restore."""
        back = self._back
        # Log time never goes back, so the oldest stand first.
        while back and back[name := next(iter(back))] <= since_ms:
            del back[name]
        return back

    def due(self, cold: Cold) -> None:
        """A deadline of a run in the archive has passed: it fires once the run is back."""
        self._runs.want(cold, self._now.log_ms, TIMER)

    def restored(self, event: RunRestored) -> None:
        """A run comes back, with what the archive had of it; or it is said why it does not."""
        held = self._runs.get(event.run_id)
        arrivals = self._arrivals
        if isinstance(held, Cold) and event.trouble:
            ruling = self._trouble(held, event)
        elif isinstance(held, Cold):
            ruling = _fault(held, event) or APPLIED
        elif isinstance(held, Run) or (isinstance(held, Stub) and held.head.state is not None):
            ruling = duplicate("not_archived")
        elif held is None and arrivals.erased(event):
            return
        elif event.absent and not event.trouble:
            self._from_elsewhere(held, event)
            return
        else:
            ruling = refused("unknown_run")
        arrivals.counts[ruling.outcome] += 1
        if held is not None and ruling.outcome is not Outcome.DUPLICATE:
            arrivals.audit(event, ruling, held.head.state, held.head.run_version)
        if isinstance(held, Cold) and ruling is APPLIED and not event.trouble:
            # From here on they are what this code writes, whatever layout they were archived in.
            parts = parts_as(max(LAYOUTS), unpack_parts(event.parts))
            self._runs.put_back(held, parts)
            self._back.pop(held.id, None)
            self._back[held.id] = self._now.log_ms
            self._catch_up(held)

    def _catch_up(self, cold: Cold) -> None:
        """What waited is applied in order, and between it the deadlines that passed meanwhile."""
        passed_ms = cold.head.wanted_ms
        waiting, cold.waiting = cold.waiting, None
        for each in waiting or ():
            passed_ms = max(passed_ms, each.at_ms)
            self._overdue(cold.id, passed_ms)
            self._arrivals.deliver([each])
        self._overdue(cold.id, self._now.log_ms)

    def _overdue(self, run_id: str, until_ms: int) -> None:
        while True:
            held = self._runs.get(run_id)
            if not isinstance(held, Run) or held.log_due > until_ms:
                return
            self._units.timer(held, live=False)
            self._arrivals.after(held)

    def _known(self, digest: bytes) -> None:
        layout = layout_of(digest)
        if layout > max(LAYOUTS):
            raise RulesUnknown(
                f"partition {self._now.partition}: states of runs have layout {layout}; this code"
                f" knows {max(LAYOUTS)}: start a newer one"
            )

    def _trouble(self, cold: Cold, event: RunRestored) -> Ruling:
        """It stays where it is; a person is told once of each trouble."""
        trouble = event.trouble[:DETAIL_CHARS_MAX]
        if trouble == cold.head.trouble:
            return duplicate()
        cold.head = msgspec.structs.replace(cold.head, trouble=trouble)
        self._runs.changed(cold)
        self._now.outbox.put("escalations", Escalate(_notice(self._now, cold)))
        return APPLIED

    def _from_elsewhere(self, stub: Held | None, event: RunRestored) -> None:
        """A run that this cluster has never heard of, or what is left of one that has ended; events
        may have come ahead of it.
        """
        self._known(event.digest)
        found = _stranger(event)
        ruling = found if isinstance(found, Ruling) else APPLIED
        self._arrivals.counts[ruling.outcome] += 1
        if isinstance(found, Ruling):
            self._arrivals.audit(event, found, None, 0)
            return
        taken: Run | Stub
        if isinstance(found, Stub):
            taken = found
            self._runs.add(found)
        else:
            taken = take_in(event.run_id, found, self._runs, self._now.plans)
        self._arrivals.audit(event, ruling, taken.head.state, taken.head.run_version)
        waiting = stub.waiting if isinstance(stub, Stub) else None
        if isinstance(stub, Stub):
            stub.waiting = None
        self._arrivals.deliver(waiting or [])
        self._overdue(taken.id, self._now.log_ms)


def _is_run(held: Held | PackedRun) -> bool:
    if isinstance(held, PackedRun):
        return read_prefix(held.header).kind == KIND_RUN
    return isinstance(held, Run)


def _fault(cold: Cold, event: RunRestored) -> Ruling | None:
    if not 0 < len(event.restore_id) <= ID_CHARS_MAX:
        return refused("bad_id", f"the id of a restore has 1 to {ID_CHARS_MAX} characters")
    if not is_digest_of(event.digest, event.parts):
        return refused("damaged_parts", "what was brought is not what its digest says")
    if event.digest != cold.head.digest:
        return refused("other_parts", f"segment {cold.head.segment} has another state of the run")
    return None


def _stranger(event: RunRestored) -> Foreign | Stub | Ruling:
    if fault := name_fault(event.run_id):
        return refused("bad_run_id", fault)
    if not is_digest_of(event.digest, event.parts):
        return refused("damaged_parts", "what was brought is not what its digest says")
    found = read_foreign(event.run_id, event.parts)
    return refused("bad_parts", found) if isinstance(found, str) else found


def _notice(now: Moment, cold: Cold) -> Escalation:
    head = cold.head
    return notice(
        now,
        cold.id,
        head,
        mark=f"archive:{head.archived_ms}:{now.offset}",
        reason="not_restored",
        message=f"segment {head.segment}: {head.trouble}",
        question=(
            f"Nothing is asked: run {cold.id} cannot come back from the archive. It stays there and"
            " its events wait, until its segment is mended or `dalsegno restore` brings it."
        ),
        silence_text="Nothing: no answer is waited for, and the archive is asked again and again.",
        became="archived",
    )
