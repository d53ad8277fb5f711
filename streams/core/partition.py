"""A partition's fold: records in, outputs out, and the state in between as parts.

One record, in this order:

1. log time moves by its append time, and live time if it is a fresh tick;
2. each deadline that has passed fires: log-time ones first, in the order (deadline, run, step);
3. the record itself is applied: it has one of five outcomes, or it waits for its run;
4. its outputs are handed over under its offset.

Each timer and each event is a unit of its own. No I/O, no clock, no random numbers, no logging.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from dalsegno.schemas.control import (
    ArchiveConfirmed,
    ClockTick,
    ErasureConfirmed,
    PartitionControl,
    Policy,
    RunControl,
    RunRestored,
)
from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.archived import Archived
from dalsegno.streams.core.arrivals import Arrivals
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.carrying import Carrying
from dalsegno.streams.core.cold_runs import ColdRuns
from dalsegno.streams.core.controls import RULES_KNOWN, Controls
from dalsegno.streams.core.erasing import Erasing
from dalsegno.streams.core.firing import Firing
from dalsegno.streams.core.layouts import layout_under
from dalsegno.streams.core.moment import Moment, Ruling
from dalsegno.streams.core.partition_facts import PartitionFacts
from dalsegno.streams.core.partition_parts import (
    ESTIMATE_KEY,
    OWN_FORMAT,
    PARTITION_KEY,
    PartitionPart,
    read_own_part,
    sort_parts,
)
from dalsegno.streams.core.query import RunView, still_open, view_of
from dalsegno.streams.core.quotas import Quotas
from dalsegno.streams.core.record import Blank, Record, Unreadable
from dalsegno.streams.core.recovery.preview import Previews
from dalsegno.streams.core.releasing import Releasing
from dalsegno.streams.core.residence import Residence
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.core.state_digest import digest_of
from dalsegno.streams.core.tombstones import Tombstones
from dalsegno.streams.core.units import Units
from dalsegno.streams.core.versions import Versions
from dalsegno.streams.core.warm import Warm

EVENTS_TOPIC: Final = "dalsegno.events"

_encode = msgspec.msgpack.Encoder().encode
_OUTCOMES: Final = tuple(Outcome)


class Partition(PartitionFacts):
    """The state of one partition and the fold over its log. Not thread-safe.

    `mac_keys`: key ids of the built-in policy, in force until the first `PolicySet`. `topic`: what
    dead letters name as the topic they came from.
    """

    def __init__(
        self,
        number: int,
        *,
        mac_keys: tuple[str, ...] = (),
        topic: str = EVENTS_TOPIC,
        rules_known: tuple[int, ...] = RULES_KNOWN,
    ) -> None:
        self.number = number
        self.position = 0
        self._now = Moment(number, Policy(mac_keys=mac_keys))
        self._runs = Runs(self._now.plans, self._now.recovery, self._now.points)
        self._controls = Controls(self._now, rules_known)
        units = Units(self._now, self._runs)
        self._stones = Tombstones()
        erasing = Erasing(self._now, self._runs, self._stones)
        self._arrivals = Arrivals(self._now, self._runs, units, erasing, topic)
        self._cold = ColdRuns(self._now, self._runs, units, self._arrivals)
        self._firing = Firing(self._now, self._runs, units, self._arrivals, self._cold)
        self._releasing = Releasing(self._now, self._runs, units)
        self._quotas = Quotas(self._now, self._runs, self._releasing)

    def apply(self, record: Record) -> list[Output]:
        """Applies the record at `position` and returns its outputs.

        What raises in a unit costs that unit's run. `RulesUnknown`, `StateCorrupt`, exhausted
        memory or stack pass through: the partition must stop, and be restored before it goes on.
        """
        now = self._now
        event = record.event
        now.outbox.offset = now.offset = record.offset
        now.at_ms = record.at_ms
        clock = now.clock
        clock.observe(record.at_ms)
        if type(event) is ClockTick and self._controls.fresh(event):
            clock.tick(now.policy.live_cap_ms)
        runs = self._runs
        if (
            clock.log_ms >= runs.log_timers.soonest_ms
            or clock.live_ms >= runs.live_timers.soonest_ms
        ):
            self._firing.fire()
        if isinstance(event, RunEvent):
            self._arrivals.run_event(record, event)
        elif type(event) is RunRestored:
            self._cold.restored(event)
        elif isinstance(event, RunControl):
            self._arrivals.run_control(record, event)
        elif isinstance(event, PartitionControl):
            self._arrivals.counts[self._controlled(event).outcome] += 1
        elif isinstance(event, Blank):
            self._arrivals.counts[event.outcome] += 1
            self._stones.blank(event, clock.log_ms)
        else:
            assert isinstance(event, Unreadable), f"{type(event).__name__} is no event"
            self._arrivals.dead_letter(record, event.reason, event.detail, event.run_id)
        recovery = now.recovery
        if recovery.holds or recovery.freezes:
            now.offset, now.at_ms = record.offset, record.at_ms
            self._releasing.pump()
        if clock.log_ms >= now.points.due_ms:
            self._quotas.report()
        self.position = record.offset + 1
        return now.outbox.take()

    def _controlled(self, event: PartitionControl) -> Ruling:
        if isinstance(event, ErasureConfirmed) and event.partition == self.number:
            return self._stones.confirm(event)
        ruling = self._controls.apply(event)
        if ruling.outcome is not Outcome.APPLIED:
            return ruling
        if type(event) is ArchiveConfirmed:
            self._cold.confirmed(event)
        return self._quotas.after(event)

    @property
    def archived(self) -> Archived:
        """What its owner does about runs in the archive."""
        layout = layout_under(self._controls.rules)
        return Archived(self._now, self._runs, self._cold, layout)

    @property
    def carrying(self) -> Carrying:
        """How its runs go to another cluster, once this log is gone."""
        return Carrying(self._now, self._runs, self._releasing, self.archived)

    def run(self, run_id: str) -> RunView | None:
        """What is known of a run; None when nothing is."""
        held = self._runs.look(run_id)
        if held is None:
            return None
        return view_of(held)

    def references(self, run_id: str) -> set[bytes]:
        """Digests of the blobs that a run or stub holds, in events that wait for it too."""
        return self._runs.references(run_id)

    def is_open(self, run_id: str) -> bool:
        """Whether more may come of this run: it is live, or reports wait for its start."""
        return still_open(self._runs.look(run_id))

    @property
    def versions(self) -> Versions:
        """Versions of runs as they are made, for who keeps a history."""
        return self._runs.versions

    @property
    def residence(self) -> Residence | None:
        """What its owner does about runs that are not in memory; None without a store."""
        held = self._runs.residency
        return None if held is None else Residence(self._runs, held, self._now)

    @property
    def previews(self) -> Previews:
        """Plans of recoveries, what waits for its turn, and what waits for nobody."""
        return Previews(self._now, self._runs, self._controls.numbers)

    def run_ids(self) -> Iterator[str]:
        """Ids of all runs and stubs, those in memory first."""
        return self._runs.ids()

    def held_ids(self) -> Iterator[str]:
        """Ids of the runs and stubs that are in memory."""
        return self._runs.held_ids()

    def drain_in_flight(self) -> list[tuple[tuple[str, str], Attempt | None]]:
        """Attempts in flight that changed since the last call, by (run id, step)."""
        return self._runs.drain_in_flight()

    def capture(self) -> list[tuple[bytes, bytes | None]]:
        """Parts that changed since the last call (None: gone), and the partition's own part."""
        out = self._runs.capture()
        out.extend(
            (ESTIMATE_KEY + name.encode(), data)
            for name, data in self._now.recovery.estimates.take_dirty()
        )
        out.extend(self._stones.take_dirty())
        out.append((PARTITION_KEY, self._own_part()))
        return out

    def parts(self) -> dict[bytes, bytes]:
        """The whole state."""
        estimates = self._now.recovery.estimates.packed()
        return {
            **self._runs.parts(),
            **{ESTIMATE_KEY + name.encode(): data for name, data in estimates},
            **self._stones.parts(),
            PARTITION_KEY: self._own_part(),
        }

    def digest(self) -> bytes:
        """A digest of the whole state, 32 bytes."""
        return digest_of(self.parts())

    def _own_part(self) -> bytes:
        clock = self._now.clock
        counts = self._arrivals.counts
        return _encode(
            PartitionPart(
                format=OWN_FORMAT,
                position=self.position,
                log_ms=clock.log_ms,
                live_ms=clock.live_ms,
                anchor_ms=clock.anchor_ms,
                rules=self._controls.rules,
                policy=self._now.policy,
                policy_number=self._now.policy_number,
                counts=[counts[outcome] for outcome in _OUTCOMES],
                waiting=self._arrivals.waiting,
                outputs=sorted(self._now.outbox.counts.items()),
                numbers=sorted(self._controls.numbers.items()),
                recovery=self._now.recovery.pack(),
                points=self._now.points.part(),
            )
        )

    @classmethod
    def restore(
        cls,
        number: int,
        parts: Iterable[tuple[bytes, bytes]],
        *,
        mac_keys: tuple[str, ...] = (),
        topic: str = EVENTS_TOPIC,
        rules_known: tuple[int, ...] = RULES_KNOWN,
    ) -> Partition:
        """The partition as its parts say; runs stay bytes until they are touched.

        Without the partition's own part the result is empty. Raises `StateCorrupt`.
        """
        partition = cls(number, mac_keys=mac_keys, topic=topic, rules_known=rules_known)
        partition._take(parts)
        return partition

    @classmethod
    def open(
        cls,
        number: int,
        warm: Warm,
        *,
        mac_keys: tuple[str, ...] = (),
        topic: str = EVENTS_TOPIC,
        rules_known: tuple[int, ...] = RULES_KNOWN,
    ) -> Partition:
        """The partition as the store has it; its runs stay there until they are touched.

        Raises `StateCorrupt`, `WarmLost`.
        """
        partition = cls(number, mac_keys=mac_keys, topic=topic, rules_known=rules_known)
        partition._now.flying = partition._runs.open_store(warm)
        partition._take(warm.others(), stored=True)
        return partition

    def _take(self, parts: Iterable[tuple[bytes, bytes]], *, stored: bool = False) -> None:
        sorted_out = sort_parts(parts)
        own, headers = sorted_out.own, sorted_out.headers
        for digest, plan in sorted_out.plans:
            self._now.plans.restore(digest, plan)
        if own is None:
            found = self._runs.open if stored else len(headers)
            if found:
                raise StateCorrupt(f"partition {self.number}: {found} runs and no own part")
            return
        if not stored:
            self._now.flying = self._runs.load(headers, sorted_out.others)
        self._load(own)
        self._load_recovery(sorted_out.estimates)
        self._stones.load(sorted_out.tombstones)

    def _load(self, data: bytes) -> None:
        own = read_own_part(self.number, data)
        now = self._now
        self.position = own.position
        now.clock.log_ms, now.clock.live_ms = own.log_ms, own.live_ms
        now.clock.anchor_ms = own.anchor_ms
        now.policy, now.policy_number = own.policy, own.policy_number
        now.outbox.counts = dict(own.outputs)
        self._controls.rules = own.rules
        self._controls.numbers = dict(own.numbers)
        self._arrivals.counts = dict(zip(_OUTCOMES, own.counts, strict=True))
        self._arrivals.waiting = own.waiting
        if own.recovery is not None:
            now.recovery.load(own.recovery)
        if own.points is not None:
            now.points.load(own.points)

    def _load_recovery(self, estimates: list[tuple[str, bytes]]) -> None:
        try:
            self._now.recovery.estimates.load(estimates)
        except msgspec.MsgspecError as error:
            raise StateCorrupt(f"partition {self.number}: an estimate: {error}") from error
        self._runs.load_held()
        self._quotas.load()
