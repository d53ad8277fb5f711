"""The runs of a partition, and what has changed since the last capture."""

from __future__ import annotations

from itertools import islice
from typing import Final

from msgspec.structs import replace

from dalsegno.streams.core import tags
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.capturing import Held, capture_held, parts_of, thawed
from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.deadlines import refresh
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.faultpoint.attempts import all_landed, follow, went_well
from dalsegno.streams.core.faultpoint.points import Points
from dalsegno.streams.core.held_runs import HeldRuns
from dalsegno.streams.core.in_flight import attempt, attempt_of
from dalsegno.streams.core.plan_store import PlanStore
from dalsegno.streams.core.recovery.adopting import before_adoption, count_pace, put_in_lines
from dalsegno.streams.core.recovery.state import Recovery
from dalsegno.streams.core.recovery.unowned import Unowned, unowned_in
from dalsegno.streams.core.residency import Residency
from dalsegno.streams.core.runstate import FLYING, NEVER, Run, Stub, aloft
from dalsegno.streams.core.state_codec import (
    KIND_COLD,
    KIND_RUN,
    PAGE_EFFECTS,
    PAGE_IDS,
    Prefix,
    StateCorrupt,
    header_key,
    part_key,
    part_keys,
    read_prefix,
)
from dalsegno.streams.core.versions import Versions
from dalsegno.streams.core.warm import PackedRun, Warm
from dalsegno.streams.core.weight import weight_of

# One-shot ids that a run remembers: beyond it the oldest page of them is forgotten.
IDS_MAX: Final = 1_024
_LOADED_AT_ONCE: Final = 500
# Ids that a run may ever use: pages of them are numbered in 16 bits. A cancel is always taken.
IDS_EVER_MAX: Final = PAGE_IDS * 65_534


class Runs(HeldRuns):
    """All runs and stubs, their deadlines, and what has changed since the last capture.

    `cold` counts runs in the archive, `wanted` names those of them that are to come back.
    """

    def __init__(self, plans: PlanStore, recovery: Recovery, points: Points) -> None:
        super().__init__(plans)
        self._recovery = recovery
        self._points = points
        self._to_hold: list[str] = []
        self._gone: dict[bytes, None] = {}
        self._back: dict[str, list[tuple[bytes, bytes]]] = {}
        self.cold = 0
        self.wanted: dict[str, None] = {}
        self._flights: dict[tuple[str, str], None] = {}
        self.versions = Versions(self.look)

    def unowned(self, run_id: str, width: int) -> list[Unowned]:
        """What of a run waits for nobody. Of one that is still bytes, only its deadlines are asked
        about: it was in order when it was saved. One without a deadline is read back and looked at.
        """
        held = self._held.get(run_id)
        if held is None and self.residency is not None:
            return []
        due = NEVER if held is None else self._log_due(run_id)
        if type(held) is PackedRun and due == NEVER:
            held = self.get(run_id)
        if isinstance(held, Run):
            holds = self._recovery.holds
            return unowned_in(held, holds, self.log_timers, self.live_timers, width)
        at_rest = isinstance(held, Cold) and due == NEVER
        if held is None or at_rest or (due != NEVER and self.log_timers.knows(run_id, due)):
            return []
        return [Unowned(run_id=run_id, step="", state="", why="no timer for its log deadline")]

    def add(self, held: Held) -> None:
        """Takes a new run or stub in the place of a stub, if there is one."""
        old = self._held.get(held.id)
        if isinstance(old, Stub):
            self._forget(old)
            held.kept = old.kept
            self._dirty.setdefault(held.id, set()).add(tags.ALL_WAITING)
        self._held[held.id] = held
        if isinstance(held, Run):
            self._plans.hold(held.entry)
            self.open += 1
            self.changed(held, tags.ALL_CONTEXT)
        # What waited in the stub has left it: its part, if it was ever written, must go too.
        self.changed(held, tags.ALL_WAITING if isinstance(old, Stub) else None)

    def adopt_absent(self, run: Run, parts: list[tuple[bytes, bytes]]) -> None:
        """A run that another cluster archived: as `add`, and its parts are kept as they came."""
        self.add(run)
        self._back[run.id] = parts

    def archive(self, run: Run, cold: Cold) -> None:
        """The run's parts go, a stub stays: it has not ended, and its plan is named as before."""
        self._bury(run)
        self._held[run.id] = cold
        self._dirty[run.id] = set()
        self.cold += 1
        self.log_timers.changed(run.id, cold.log_due)

    def want(self, cold: Cold, log_ms: int, by: str) -> None:
        """The run is to come back."""
        if not cold.head.wanted_ms:
            cold.head = replace(cold.head, wanted_ms=log_ms, wanted_by=by)
            self.wanted[cold.id] = None
            self.changed(cold)

    def put_back(self, cold: Cold, parts: list[tuple[bytes, bytes]]) -> Run:
        """The run is what it was: the next capture has all of it. Raises `StateCorrupt`."""
        key = header_key(cold.id)
        others = [part for part in parts if part[0] != key]
        run = thawed(cold.id, PackedRun(dict(parts)[key], others), self._plans)
        assert isinstance(run, Run), "only states of runs are archived"
        self._held[run.id] = run
        self._back[run.id] = others
        self.cold -= 1
        self.wanted.pop(run.id, None)
        self.changed(run, tags.ALL_WAITING)
        return run

    def abandon(self, run_id: str, stub: Stub | None) -> None:
        """A start that raised: what was there before it is there again."""
        run = self._held.get(run_id)
        if isinstance(run, Run):
            self._plans.drop(run.entry.plan.digest)
            self.open -= 1
            del self._held[run_id]
            del self._dirty[run_id]
            if stub is not None:
                self._held[run_id] = stub
                self.changed(stub, tags.ALL_WAITING)

    def end(self, run: Run, stub: Stub) -> None:
        """The run has ended: its parts go, the stub stays and keeps the plan."""
        self._bury(run)
        self.open -= 1
        self._held[run.id] = stub
        self._dirty[run.id] = set()
        self.grounded(run)
        self.log_timers.changed(run.id, stub.log_due)

    def grounded(self, run: Run) -> None:
        """No attempt of the run is followed any more: it has ended, or was put aside."""
        if self._recovery.holds:
            self._recovery.holds.drop(run.id)
        if self._points.views:
            all_landed(self._points, run)
        steps = run.entry.steps
        for place, row in enumerate(run.rows):
            if row.flight is not None:
                self._flights[run.id, steps[place].name] = None

    def _bury(self, run: Run) -> None:
        dirty = self._dirty.pop(run.id, None) or ()
        self._back.pop(run.id, None)
        if not run.kept:
            return
        for key in part_keys(run):
            self._gone[key] = None
        for tag in sorted(dirty):
            if tag != tags.ALL_CONTEXT:
                self._gone[part_key(run.id, tag)] = None

    def _forget(self, stub: Stub | Cold) -> None:
        if stub.head.plan_digest:
            self._plans.drop(stub.head.plan_digest)

    def remove(self, stub: Stub | Cold) -> None:
        """The stub has been kept as long as it may matter, or its run is erased."""
        self._forget(stub)
        if isinstance(stub, Cold):
            self.open -= 1
            self.cold -= 1
            self.wanted.pop(stub.id, None)
        del self._held[stub.id]
        self._dirty.pop(stub.id, None)
        if self.residency is not None:
            self.residency.removed(stub.id)
        if stub.kept:
            self._gone[header_key(stub.id)] = None
            self._gone[part_key(stub.id, tags.ALL_WAITING)] = None

    def changed(self, held: Held, tag: int | None = None) -> None:
        """The header has changed, and the part that `tag` stands for."""
        marks = self._dirty.get(held.id)
        if marks is None:
            marks = self._dirty[held.id] = set()
        if tag is not None:
            marks.add(tag)
        self.log_timers.changed(held.id, held.log_due)
        if held.live_due != NEVER:
            self.live_timers.changed(held.id, held.live_due)

    def adopt(self, draft: Draft) -> int:
        """Adopts a unit's draft, notes what changed; returns the change of attempts in flight."""
        run = draft.run
        before = run.head
        run_id = run.id
        if draft.entry is not run.entry:
            self._plans.hold(draft.entry)
            self._plans.drop(run.entry.plan.digest)
        marks = self._dirty.get(run_id)
        if marks is None:
            marks = self._dirty[run_id] = set()
        if draft.held or draft.took is not None or draft.head.damage is not before.damage:
            before_adoption(self._recovery, draft)
        points = self._points
        if points.views or draft.findings:
            follow(points, draft)
        elif draft.well is not None:
            went_well(points, draft)
        if self.versions.wanted and draft.head.run_version != before.run_version:
            self.versions.note(draft)
        draft.adopt(marks, self._flights)
        if draft.change is not None:
            marks.add(tags.ALL_CONTEXT)
        if draft.effect is not None:
            place, at, _ = draft.effect
            marks.add(tags.EFFECTS << tags.SHIFT | place << 16 | at // PAGE_EFFECTS)
        if draft.save is not None:
            marks.add(tags.SAVE << tags.SHIFT | draft.save[0])
        if draft.seen and run.seen is not None:
            _forget_ids(run, marks)
        log_due, live_due = run.log_due, run.live_due
        refresh(run)
        # A later deadline needs no entry: the earlier one surfaces first and is compared then.
        if run.log_due < log_due:
            self.log_timers.changed(run_id, run.log_due)
        if run.live_due < live_due:
            self.live_timers.changed(run_id, run.live_due)
        head = run.head
        if head.recovering or before.recovering:
            count_pace(self._recovery, draft.now.log_ms, before, head)
        if head.state is before.state:
            # The most frequent case; of a run that nobody follows the tally does not change.
            return head.tally[FLYING] - before.tally[FLYING]
        return aloft(head) - aloft(before)

    def flying(self) -> list[str]:
        """After a restore: the runs that have attempts in flight."""
        return [run_id for run_id, step in self._flights if not step]

    def load_held(self) -> None:
        """After a restore: the lines are what the rows of its runs say."""
        names, self._to_hold = self._to_hold, []
        for run_id in names:
            run = self.get(run_id)
            if isinstance(run, Run):
                put_in_lines(self._recovery, run)

    def remember(self, run: Run, request: str, refusal: tuple[str, str]) -> None:
        """A one-shot request was refused, for this reason and detail: a repeat hears the same."""
        if run.seen is None:
            run.seen = {}
        run.seen[request] = refusal
        marks = self._dirty.get(run.id)
        if marks is None:
            marks = self._dirty[run.id] = set()
        _forget_ids(run, marks)

    def capture(self) -> list[tuple[bytes, bytes | None]]:
        """Parts that changed since the last call; None for those that are gone."""
        out: dict[bytes, bytes | None] = dict.fromkeys(self._gone)
        self._gone = {}
        for parts in self._back.values():
            out.update(parts)
        self._back = {}
        for run_id, marks in self._dirty.items():
            held = self._held[run_id]
            assert not isinstance(held, PackedRun), "bytes do not change"
            capture_held(held, marks, out)
            if not isinstance(held, Run) and not held.waiting:
                # A stub is looked at rarely: its bytes are its smallest form.
                self._held[run_id] = PackedRun(out[header_key(run_id)] or b"", [])
        for digest in self._plans.take_dirty():
            out[b"p" + digest] = self._plans.packed(digest)
        if self.residency is not None:
            for run_id in self._dirty:
                self.residency.aged(run_id, weight_of(self._held[run_id]), self.stamp)
            self.residency.captured(self._dirty)
            self._plans.captured(self.residency.captures)
        self._dirty = {}
        return list(out.items())

    def parts(self) -> dict[bytes, bytes]:
        """Every part of every run, stub and plan."""
        out: dict[bytes, bytes] = {}
        for run_id, held in self._held.items():
            out.update(parts_of(run_id, held))
        named = set(map(self._plan_of, self._held.values()))
        if self.residency is not None:
            for run_id, packed in self.residency.runs(self._held):
                out.update(parts_of(run_id, packed))
                named.add(read_prefix(packed.header).plan)
        for digest, plan in self._plans.all(named):
            out[b"p" + digest] = plan
        return out

    def load(self, headers: dict[str, bytes], parts: dict[str, list[tuple[bytes, bytes]]]) -> int:
        """Takes a restored partition. Returns how many attempts are in flight."""
        logs: list[tuple[int, str]] = []
        lives: list[tuple[int, str]] = []
        flying = 0
        for run_id, header in headers.items():
            prefix: Prefix = read_prefix(header)
            self._held[run_id] = PackedRun(header, parts.pop(run_id, []))
            if prefix.log_due != NEVER:
                logs.append((prefix.log_due, run_id))
            if prefix.live_due != NEVER:
                lives.append((prefix.live_due, run_id))
            if prefix.plan:
                self._plans.restore_hold(prefix.plan)
            self.open += prefix.kind in {KIND_RUN, KIND_COLD}
            self.cold += prefix.kind == KIND_COLD
            flying += self._moves(run_id, prefix)
        # In the order of a store's, whatever order the changelog was in.
        self._flights = dict.fromkeys(sorted(self._flights))
        self.wanted = dict.fromkeys(sorted(self.wanted))
        self._to_hold.sort()
        if parts:
            raise StateCorrupt(f"parts without a header: runs {sorted(parts)[:3]}")
        self.log_timers.load(logs)
        self.live_timers.load(lives)
        return flying

    def _moves(self, run_id: str, prefix: Prefix) -> int:
        if prefix.held:
            self._to_hold.append(run_id)
        if prefix.wanted:
            self.wanted[run_id] = None
        if prefix.flying:
            self._flights[run_id, ""] = None
        return prefix.flying

    def open_store(self, warm: Warm) -> int:
        """Takes a partition whose runs are outside, but for those that move. Returns how many
        attempts are in flight.
        """
        self.residency = Residency(warm)
        self._plans.open_store(warm)
        totals = warm.totals()
        self.open, self.cold = totals.open, totals.cold
        if self.residency.outside:
            self.log_timers.all_outside()
            self.live_timers.all_outside()
        moving = warm.moving()
        return sum(
            self._moves(run_id, self._came(run_id, packed))
            for first in range(0, len(moving), _LOADED_AT_ONCE)
            for run_id, packed in warm.load(moving[first : first + _LOADED_AT_ONCE]).items()
        )

    def drain_in_flight(self) -> list[tuple[tuple[str, str], Attempt | None]]:
        """Attempts in flight that changed since the last call; after a restore, all of them."""
        keys = self._flights
        self._flights = {}
        out: list[tuple[tuple[str, str], Attempt | None]] = []
        for key in keys:
            run_id, step = key
            held = self.get(run_id)
            if step:
                out.append((key, attempt_of(held, step)))
            elif isinstance(held, Run):
                for place, row in enumerate(held.rows):
                    if row.flight is not None and aloft(held.head):
                        out.append(((run_id, held.entry.steps[place].name), attempt(held, place)))
        return out


def _forget_ids(run: Run, marks: set[int]) -> None:
    """Marks the page of the newest one-shot id; the oldest page goes when there are too many."""
    assert run.seen is not None, "an id was added"
    head = run.head
    marks.add(tags.IDS << tags.SHIFT | (head.seen_from + len(run.seen) - 1) // PAGE_IDS)
    if len(run.seen) > IDS_MAX:
        marks.add(tags.IDS << tags.SHIFT | head.seen_from // PAGE_IDS)
        for name in list(islice(run.seen, PAGE_IDS)):
            del run.seen[name]
        head.seen_from += PAGE_IDS
