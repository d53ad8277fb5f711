"""What must hold of the actors of fault points after each record of their log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from tests.simulation.promises import BrokenPromiseError

from dalsegno.schemas.control import FaultPointChanged, QuotaGranted
from dalsegno.schemas.faults import FaultPointSet, HandAction
from dalsegno.schemas.outputs import FaultReport
from dalsegno.streams.core.actions import Instruct, Output
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.core.faultpoint.point import FaultPoint, Phase
from dalsegno.streams.core.record import Record

Stand = tuple[Phase, int]
# Two of the shortest leases: so long a fault point waits to hear what became of its permits.
UNHEARD_MS = 5_000


def order_of(output: Output) -> FaultPointChanged | QuotaGranted:
    """What an actor says to a partition."""
    assert isinstance(output.action, Instruct), "actors say nothing else"
    return output.action.event


class ActorPromises:
    """`closes(name)`: a breaker has closed by its probe; it raises if it should not have."""

    def __init__(self, closes: Callable[[str], None]) -> None:
        self._closes = closes
        self._in_a_row: Counter[str] = Counter()
        # What people have set.
        self._limits: dict[str, int] = {}
        self._held_open: set[str] = set()

    def apply(self, actors: FaultPoints, record: Record, *, by_hand: bool = False) -> list[Output]:
        """Applies a record and checks what came of it. `by_hand`: a person steers with it."""
        late = unheard_ms(actors, record) >= UNHEARD_MS
        before = {name: (point.phase, point.open_ms) for name, point in actors.points.items()}
        outputs = actors.apply(record)
        if by_hand and isinstance(record.event, FaultPointSet):
            self._steered(actors, record.event)
        granted = granted_by(outputs)
        for name, point in actors.points.items():
            stood = before.get(name, (Phase.HEALTHY, 0))
            # One that was silent for long may tell of permits that had been given up.
            self._check_grants(name, point, granted[name], told=not late)
            self._check_moves(name, point, stood, by_hand=by_hand)
        return outputs

    def _steered(self, actors: FaultPoints, event: FaultPointSet) -> None:
        name, point = event.fault_point, actors.points[event.fault_point]
        if event.action is HandAction.LIMIT:
            self._limits[name] = event.limit
        elif event.action is HandAction.OPEN:
            self._held_open.add(name)
        elif point.window.permits > 1:
            raise BrokenPromiseError(f"P9: {name} was closed by hand and begins with more than one")
        if event.action is HandAction.CLOSE:
            self._held_open.discard(name)

    def _check_grants(self, name: str, point: FaultPoint, granted: int, *, told: bool) -> None:
        if point.phase is Phase.HALF_OPEN and granted > 1:
            raise BrokenPromiseError(f"P9: {granted} probes of {name}")
        if point.phase is Phase.HALF_OPEN and sum(s.granted for s in point.sides.values()) > 1:
            raise BrokenPromiseError(f"P9: two probes of {name} are on their way")
        if point.phase in {Phase.OPEN, Phase.HEALTHY} and granted:
            raise BrokenPromiseError(f"P9: permits of {name} while it is {point.phase}")
        if granted and name in self._held_open:
            raise BrokenPromiseError(f"P9: {granted} permits of {name}, which is held open by hand")
        limited = point.out > (self._limits.get(name) or point.out)
        ramps = granted and told and point.phase is Phase.RAMPING
        if ramps and limited:
            raise BrokenPromiseError(f"P9: {point.out} out on {name}, limited by hand")
        # Before that, a partition may still tell of attempts from ahead of an opening.
        if ramps and point.out > point.size:
            raise BrokenPromiseError(f"P9: {point.out} out on {name}, allowed {point.size}")

    def _check_moves(self, name: str, point: FaultPoint, stood: Stand, *, by_hand: bool) -> None:
        phase, open_ms = stood
        if phase is Phase.HALF_OPEN and point.phase is Phase.OPEN:
            self._in_a_row[name] += 1
            if point.open_ms < max(open_ms, 800 * min(5, 2 ** self._in_a_row[name])):
                raise BrokenPromiseError(f"P9: the pause of {name} did not grow")
        elif point.phase in {Phase.RAMPING, Phase.HEALTHY}:
            self._in_a_row[name] = 0
        if phase is Phase.HALF_OPEN and point.phase is Phase.RAMPING and not by_hand:
            self._closes(name)


def unheard_ms(actors: FaultPoints, record: Record) -> int:
    """For how long a partition that reports had said nothing about the fault point."""
    report = record.event
    if not isinstance(report, FaultReport):
        return 0
    point = actors.points.get(report.fault_point)
    side = None if point is None else point.sides.get(report.partition)
    return 0 if side is None else record.at_ms - side.told_ms


def granted_by(outputs: Sequence[Output]) -> Counter[str]:
    """Permits by fault point."""
    granted: Counter[str] = Counter()
    for output in outputs:
        order = order_of(output)
        if isinstance(order, QuotaGranted):
            granted[order.fault_point] += order.permits
    return granted
