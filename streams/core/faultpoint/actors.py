"""The fold of one partition of the faults topic: the actors of the fault points that fall into it.

One record, in this order: log time moves by its append time; every point whose deadline has passed
does what is due; the record is applied. Time is the log's own: it moves by reports and by the ticks
that the owner appends when a deadline is due. No I/O, no clock, no random numbers, no logging.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from dalsegno.schemas.control import ClockTick, Policy, PolicySet
from dalsegno.schemas.faults import FaultPointSet, HealthReported, PointControl
from dalsegno.schemas.outputs import FaultReport, Outcome
from dalsegno.streams.core.actions import Instruct, Output
from dalsegno.streams.core.faultpoint.declared import Declared
from dalsegno.streams.core.faultpoint.point import FaultPoint, Phase
from dalsegno.streams.core.faultpoint.steer import Steering, deadline_ms
from dalsegno.streams.core.names import ID_CHARS_MAX, name_fault
from dalsegno.streams.core.outbox import Outbox
from dalsegno.streams.core.record import Record, Unreadable
from dalsegno.streams.core.runstate import NEVER
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.core.state_digest import digest_of
from dalsegno.streams.core.timers import Timers

OWN_KEY: Final = b"\0faults"
# With the point's name behind it.
POINT_KEY: Final = b"f"
_EVENTS: Final = "events"
# Points that one partition keeps: beyond it a new name is refused, and the reports say so.
POINTS_MAX: Final = 1_024
_REFUSALS_KEPT: Final = 8
_OUTCOMES: Final = tuple(Outcome)
_FORMAT: Final = 1

_encode = msgspec.msgpack.Encoder().encode


class Refused(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A record of the faults topic that was not taken, and why."""

    offset: int
    reason: str
    detail: str


class OwnPart(msgspec.Struct, array_like=True, kw_only=True):
    """What belongs to the partition and to no point. `refusals`: the last ones."""

    format: int
    position: int
    log_ms: int
    partitions: int
    policy: Policy
    policy_number: int
    tick_number: int
    counts: list[int]
    outputs: list[tuple[str, int]]
    refusals: list[Refused]


_own_part = msgspec.msgpack.Decoder(OwnPart)
_point_part = msgspec.msgpack.Decoder(FaultPoint)


def point_of_part(key: bytes, value: bytes) -> FaultPoint | None:
    """The point that a part of the changelog holds, None for every other part.

    Raises `StateCorrupt`.
    """
    if key[:1] != POINT_KEY:
        return None
    try:
        return _point_part.decode(value)
    except msgspec.MsgspecError as error:
        raise StateCorrupt(f"fault point {key[1:]!r}: {error}") from error


def _heard_ms(point: FaultPoint) -> int:
    return max((side.told_ms for side in point.sides.values()), default=0)


class FaultPoints:
    """The fault points of one partition of the faults topic. Not thread-safe.

    `partitions`: how many the events topic has, which is where orders go.
    """

    def __init__(self, number: int, partitions: int, *, mac_keys: tuple[str, ...] = ()) -> None:
        self.number = number
        self.position = 0
        self.log_ms = 0
        self.counts: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        self.refusals: list[Refused] = []
        self._partitions = partitions
        self._policy_number = -1
        self._tick_number = -1
        self._outbox = Outbox()
        self._points: dict[str, FaultPoint] = {}
        self._dirty: dict[str, None] = {}
        self._timers = Timers(self._due_ms)
        self._declared = Declared(Policy(mac_keys=mac_keys))

    def apply(self, record: Record) -> list[Output]:
        """Applies the record at `position` and returns the orders that come of it."""
        self._outbox.offset = record.offset
        gap_ms = record.at_ms - self.log_ms
        self.log_ms = max(self.log_ms, record.at_ms)
        if gap_ms >= self._declared.defaults.still_ms:
            self._stood_still()
        while (due := self._timers.next()) is not None and due[0] <= self.log_ms:
            self._steer(self._points[due[1]], Steering.advance)
        self.counts[self._event(record)] += 1
        self.position = record.offset + 1
        return self._outbox.take()

    def _event(self, record: Record) -> Outcome:
        event = record.event
        if isinstance(event, FaultReport):
            return self._report(event)
        if isinstance(event, FaultPointSet | HealthReported):
            return self._controlled(event)
        if isinstance(event, ClockTick):
            fresh = event.number > self._tick_number
            self._tick_number = max(self._tick_number, event.number)
            return Outcome.APPLIED if fresh else Outcome.DUPLICATE
        if isinstance(event, PolicySet):
            return self._policy(event)
        if isinstance(event, Unreadable):
            return self._refuse(event.reason, event.detail)
        return self._refuse("not_a_report", type(event).__name__)

    def _report(self, report: FaultReport) -> Outcome:
        if not 0 <= report.partition < self._partitions:
            return self._refuse("no_such_partition", f"{report.partition} of {self._partitions}")
        point = self._point(report.fault_point)
        if point is None:
            return self._refuse("bad_fault_point", f"{report.fault_point!a:.80}")
        taken = self._steer(point, lambda steering: steering.report(report))
        return Outcome.APPLIED if taken else Outcome.DUPLICATE

    def _controlled(self, event: PointControl) -> Outcome:
        # What is refused makes no point: the checkpoint would not know of it.
        if isinstance(event, FaultPointSet):
            given = (event.request_id, event.decided_by, event.reason)
            if any(not 0 < len(text) <= ID_CHARS_MAX for text in given):
                return self._refuse("unsigned", "a hand control says who and why, and has an id")
            if event.number <= 0:
                return self._refuse("unnumbered", "hand controls are numbered, from 1 on")
        point = self._point(event.fault_point)
        if point is None:
            return self._refuse("bad_fault_point", f"{event.fault_point!a:.80}")
        if isinstance(event, HealthReported):
            taken = self._steer(point, lambda steering: steering.health(event))
        else:
            assert isinstance(event, FaultPointSet), "the two controls of a point"
            taken = self._steer(point, lambda steering: steering.hand(event))
        return Outcome.APPLIED if taken else Outcome.DUPLICATE

    def _policy(self, event: PolicySet) -> Outcome:
        if event.number <= self._policy_number:
            return Outcome.DUPLICATE
        self._policy_number = event.number
        self._declared = Declared(event.policy)
        for point in self._points.values():
            point.checked = self._declared.checked(point.name)
            self._changed(point)
        return Outcome.APPLIED

    def _refuse(self, reason: str, detail: str) -> Outcome:
        refusal = Refused(self._outbox.offset, reason, detail[:ID_CHARS_MAX])
        self.refusals = [*self.refusals, refusal][-_REFUSALS_KEPT:]
        return Outcome.REFUSED

    def _point(self, name: str) -> FaultPoint | None:
        point = self._points.get(name)
        if point is None and not name_fault(name) and self._has_room():
            point = self._points[name] = FaultPoint(name=name, checked=self._declared.checked(name))
        return point

    def _has_room(self) -> bool:
        """Whether one more point can be kept; the one at rest for longest is forgotten for it."""
        if len(self._points) < POINTS_MAX:
            return True
        at_rest = [point for point in self._points.values() if self._at_rest(point)]
        if not at_rest:
            return False
        oldest = min(at_rest, key=lambda point: (_heard_ms(point), point.name))
        del self._points[oldest.name]
        self._dirty[oldest.name] = None
        return True

    def _at_rest(self, point: FaultPoint) -> bool:
        """Whether all that is known of a point is that it is healthy, and that nobody needs it."""
        return (
            point.phase is Phase.HEALTHY
            and not (point.hands or point.limit or point.held_open or point.in_a_row)
            and point.out == point.waiting == 0
            and self._due_ms(point.name) == NEVER
        )

    def _steer(self, point: FaultPoint, what: Callable[[Steering], bool | None]) -> bool:
        steering = Steering(
            point, self.log_ms, self._partitions, self._declared.settings(point.name)
        )
        before = _encode(point)
        try:
            taken = what(steering)
        except (MemoryError, RecursionError):
            raise
        # The boundary of a record (P12): what raises costs that record, and nothing else.
        except Exception as error:  # noqa: BLE001
            self._points[point.name] = _point_part.decode(before)
            self._changed(self._points[point.name])
            self._refuse("apply_raised", repr(error))
            return False
        for order in steering.orders:
            self._outbox.put(_EVENTS, Instruct(order))
        self._changed(point)
        return taken is not False

    def _stood_still(self) -> None:
        for point in self._points.values():
            if point.phase is Phase.RAMPING:
                self._steer(point, Steering.stood_still)

    def _changed(self, point: FaultPoint) -> None:
        self._dirty[point.name] = None
        due_ms = self._due_ms(point.name)
        if due_ms != NEVER:
            self._timers.changed(point.name, due_ms)

    def _due_ms(self, name: str) -> int:
        point = self._points.get(name)
        if point is None:
            return NEVER
        due_ms = deadline_ms(point, self._declared.settings(name))
        return NEVER if due_ms is None else due_ms

    @property
    def policy(self) -> Policy:
        """The policy in force for this topic."""
        return self._declared.policy

    @property
    def needs_tick(self) -> bool:
        """Ticks come when a deadline is due, not each second."""
        return False

    @property
    def next_report_ms(self) -> int | None:
        """Nobody is reported to."""
        return None

    @property
    def next_log_deadline_ms(self) -> int | None:
        """When a tick is due, if nothing comes before."""
        due = self._timers.next()
        return None if due is None else due[0]

    @property
    def points(self) -> dict[str, FaultPoint]:
        """The points by name, to be looked at."""
        return self._points

    @property
    def declared(self) -> Declared:
        """What the policy declares about dependencies."""
        return self._declared

    def capture(self) -> list[tuple[bytes, bytes | None]]:
        """Parts that changed since the last call, and always the partition's own."""
        names, self._dirty = self._dirty, {}
        out: list[tuple[bytes, bytes | None]] = [
            (
                POINT_KEY + name.encode(),
                _encode(self._points[name]) if name in self._points else None,
            )
            for name in names
        ]
        out.append((OWN_KEY, self._own()))
        return out

    def parts(self) -> dict[bytes, bytes]:
        """The whole state."""
        out = {POINT_KEY + name.encode(): _encode(point) for name, point in self._points.items()}
        out[OWN_KEY] = self._own()
        return out

    def digest(self) -> bytes:
        """A digest of the whole state, 32 bytes."""
        return digest_of(self.parts())

    def _own(self) -> bytes:
        return _encode(
            OwnPart(
                format=_FORMAT,
                position=self.position,
                log_ms=self.log_ms,
                partitions=self._partitions,
                policy=self.policy,
                policy_number=self._policy_number,
                tick_number=self._tick_number,
                counts=[self.counts[outcome] for outcome in _OUTCOMES],
                outputs=sorted(self._outbox.counts.items()),
                refusals=self.refusals,
            )
        )

    @classmethod
    def restore(
        cls,
        number: int,
        partitions: int,
        parts: Iterable[tuple[bytes, bytes]],
        *,
        mac_keys: tuple[str, ...] = (),
    ) -> FaultPoints:
        """The points as their parts say. Raises `StateCorrupt`."""
        made = cls(number, partitions, mac_keys=mac_keys)
        try:
            for key, value in sorted(parts):
                if key == OWN_KEY:
                    made._load(_own_part.decode(value))
                elif (point := point_of_part(key, value)) is not None:
                    made._points[point.name] = point
        except (msgspec.MsgspecError, ValueError) as error:
            raise StateCorrupt(f"faults partition {number}: {error}") from error
        due = [(made._due_ms(name), name) for name in made._points]
        made._timers.load([entry for entry in due if entry[0] != NEVER])
        return made

    def _load(self, own: OwnPart) -> None:
        if own.format != _FORMAT:
            raise StateCorrupt(f"state of format {own.format}; this code reads {_FORMAT}")
        if own.partitions != self._partitions:
            raise StateCorrupt(
                f"the state is of {own.partitions} events partitions, now {self._partitions}"
            )
        self.position, self.log_ms = own.position, own.log_ms
        self._policy_number, self._tick_number = own.policy_number, own.tick_number
        self._declared = Declared(own.policy)
        self.counts = dict(zip(_OUTCOMES, own.counts, strict=True))
        self._outbox.counts = dict(own.outputs)
        self.refusals = list(own.refusals)
