"""The fault points of a partition: which steps may go, and which reports are due.

A fault point that is not here is healthy: no step needs anything, and nobody says anything. A step
that depends on fault points which hold takes a permit of each, or none: in one place, at one
moment, so that no step ever waits while it has what another needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import msgspec

from dalsegno.schemas.control import BreakerState, FaultPointChanged, Policy, QuotaGranted
from dalsegno.schemas.outputs import FaultReport
from dalsegno.streams.core.faultpoint.declared import SEPARATOR, dependency_of
from dalsegno.streams.core.faultpoint.slowness import SLOW_MS_MIN, Streak, Streaks, make_room
from dalsegno.streams.core.faultpoint.view import WATCH_MS, Span, View
from dalsegno.streams.core.names import NAME_CHARS_MAX, name_fault

# Beyond this many, what fails next is not reported: the names come from plans and from reports.
VIEWS_MAX: Final = 1_024
NEVER: Final = 1 << 62
Permits = tuple[tuple[str, int], ...]
"""Permits taken: (fault point, when the permit lapses)."""


class PointsPart(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """What a checkpoint keeps of the fault points, within the partition's part."""

    views: list[View] = []
    spans: list[tuple[str, Span]] = []
    streaks: list[tuple[str, Streak]] = []


class Around(Protocol):
    """What is known beside the fault points: the policy in force and log time."""

    policy: Policy

    @property
    def log_ms(self) -> int:
        """Log time of the events."""


class Points:
    """All fault points that a partition knows. Not thread-safe.

    `holding`: those that hold steps, by dependency; empty in good times, which is all that the fast
    paths ask. `due_ms`: when something has to be said, or lapses. `waiting(point)` counts the steps
    that a point holds; `usual_ms(flow, step)` is how long such an attempt takes, 0 while that is
    not certain. `streaks`: of slow attempts, by dependency; empty while none is slow.
    """

    __slots__ = (
        "_around",
        "_by_class",
        "_policy",
        "_running",
        "due_ms",
        "holding",
        "spans",
        "streaks",
        "usual_ms",
        "views",
        "waiting",
    )

    def __init__(
        self, around: Around, waiting: Callable[[str], int], usual_ms: Callable[[str, str], int]
    ) -> None:
        self._around = around
        self.views: dict[str, View] = {}
        self.holding: dict[str, list[View]] = {}
        self.spans: dict[str, Span] = {}
        self.streaks = Streaks()
        self.due_ms = NEVER
        self.waiting = waiting
        self.usual_ms = usual_ms
        self._running: dict[str, dict[tuple[str, int], None]] = {}
        self._policy: Policy | None = None
        self._by_class: frozenset[str] = frozenset()

    def in_the_way(self, depends_on: Iterable[str]) -> list[View]:
        """Every fault point that a step needs a permit of, in the one order of all."""
        holding = self.holding
        found = [view for name in dict.fromkeys(depends_on) for view in holding.get(name, ())]
        if len(found) > 1:
            found.sort(key=_name)
        return found

    def blocked(self, depends_on: Iterable[str]) -> str:
        """The first fault point without a permit for the step, or an empty text: it may go."""
        found = self.in_the_way(depends_on)
        if len(found) > 1:
            for view in found:
                view.shared = True
        for view in found:
            if not self._in_hand(view):
                return view.name
        return ""

    def _in_hand(self, view: View) -> bool:
        """Whether there is a permit, and its lease is not over."""
        now_ms = self._around.log_ms
        if view.lapse(now_ms) and not view.due_ms:
            view.due_ms = now_ms
            self._plan(view)
        return bool(view.hand)

    def take(self, depends_on: Iterable[str]) -> Permits:
        """Spends a permit of each; `blocked` has said that they are there."""
        return tuple((view.name, view.take()) for view in self.in_the_way(depends_on))

    def give_back(self, permits: Permits) -> None:
        """The unit that took them was discarded."""
        for name, lapses_ms in permits:
            self.views[name].give_back(lapses_ms)

    def took_off(self, key: tuple[str, int], depends_on: Iterable[str], offset: int) -> None:
        """An attempt is out that was given out at an offset of the log, with a permit of each fault
        point that held then.
        """
        for view in self.in_the_way(depends_on):
            if offset > view.since:
                self._running.setdefault(view.name, {})[key] = None

    def landed(self, key: tuple[str, int]) -> None:
        """An attempt is no longer out, however it ended."""
        for name, out in self._running.items():
            if key in out:
                del out[key]
                self._news(self.views[name], outcome=False)

    def counts(self, view: View, offset: int, began_ms: int = 0) -> bool:
        """Whether an attempt that was given out at an offset of the log says anything about a fault
        point as it stands now. A service's own (-1) is not held, so it must have begun since the
        state changed last: at `began_ms`.
        """
        if not view.holds or offset > view.since:
            return True
        if offset >= 0 or began_ms <= view.changed_ms:
            return False
        if view.state is BreakerState.HALF_OPEN:
            # Where nobody is held there is no probe but this.
            return not (self.waiting(view.name) or view.hand or self._running.get(view.name))
        return view.state is BreakerState.CLOSED

    def succeeded(
        self, depends_on: Sequence[str], span_ms: int, offset: int, kind: tuple[str, str]
    ) -> None:
        """An attempt of a step of a flow went well. In good times only its span is kept."""
        holding, spans = self.holding, self.spans
        looked = span_ms > SLOW_MS_MIN or self.streaks
        # A service's own attempt that was heard of only at its end has no span.
        for name in depends_on if span_ms or offset >= 0 else ():
            if not holding or name not in holding:
                if looked and self._slow(name, span_ms, kind):
                    continue
                span = spans.pop(name, None)
                if span is None:
                    span = Span()
                    make_room(spans)
                # Last in the order: the first is forgotten where there is no room.
                spans[name] = span
                span.add(span_ms)
        if self.views:
            self._well(depends_on, span_ms, offset)

    def _slow(self, name: str, span_ms: int, kind: tuple[str, str]) -> bool:
        """Whether an attempt took too long, by a dependency that needs no permits."""
        now_ms, step = self._around.log_ms, SEPARATOR.join(kind)
        streak = self.streaks.ended(name, step, span_ms, self.usual_ms(*kind), now_ms)
        view = self._view(name) if streak else None
        if view is not None and streak:
            view.slowed(streak)
            self._news(view, outcome=True)
        return streak is not None

    def _well(self, depends_on: Sequence[str], span_ms: int, offset: int) -> None:
        now_ms = self._around.log_ms
        for view in list(self.views.values()):
            if offset < 0 and view.holds and view.state is BreakerState.CLOSED:
                continue  # what is not held must not widen the window of what is
            if dependency_of(view.name) in depends_on and self.counts(
                view, offset, now_ms - span_ms
            ):
                if view.holds or now_ms - view.failed_ms < WATCH_MS:
                    view.succeeded(span_ms)
                    self._news(view, outcome=True)
                elif not view.slow:
                    self._forget(view)

    def failed(
        self,
        depends_on: tuple[str, ...],
        dependency: str,
        error_class: str,
        *,
        retry_after_ms: int,
        offset: int,
        began_ms: int = 0,
    ) -> None:
        """An attempt failed by the dependency that it names, else by all that it depends on.

        What is named and not declared is nobody's: no step would be held by it, and none probe it.
        """
        if dependency and dependency not in depends_on:
            return
        for name in (dependency,) if dependency else depends_on:
            view = self._view(self.point_of(name, error_class))
            if view is not None and self.counts(view, offset, began_ms):
                view.failed(error_class[:NAME_CHARS_MAX], retry_after_ms, self._around.log_ms)
                self._news(view, outcome=True)

    def point_of(self, dependency: str, error_class: str) -> str:
        """The fault point that a failure is counted against."""
        policy = self._around.policy
        if policy is not self._policy:
            self._policy = policy
            self._by_class = frozenset(d.name for d in policy.dependencies if d.by_class)
        if dependency in self._by_class and error_class:
            return f"{dependency}{SEPARATOR}{error_class}"
        return dependency

    def changed(self, event: FaultPointChanged, offset: int) -> bool:
        """The actor says where a fault point stands. True when it holds nothing any more: its line
        goes.
        """
        view = self._view(event.fault_point)
        if view is None:
            return False
        held, opened = view.holds, event.state != view.state
        view.changed(event, offset, self._around.log_ms)
        if view.holds:
            self.streaks.end(dependency_of(view.name))
        if view.since == offset:
            self._running.pop(view.name, None)
        if held != view.holds:
            self._sort(view)
        if not view.holds:
            self._forget(view)
            return held
        if opened and self.waiting(view.name):
            self._news(view, outcome=False)
        return False

    def granted(self, event: QuotaGranted) -> bool:
        """Permits came. False when they are void: too old, or nothing holds."""
        view = self.views.get(event.fault_point)
        if view is None or not view.granted(event, self._around.log_ms):
            return False
        self._plan(view)
        return True

    def spent(self, name: str) -> None:
        """The line of a fault point has been served: what is left over goes back at once, unless a
        step in another line may need it.
        """
        view = self.views.get(name)
        if view is None or not view.hand or self.waiting(name):
            return
        others = view.shared and any(
            self.waiting(other.name) for other in self.views.values() if other is not view
        )
        if not others:
            view.hand = []
            self._news(view, outcome=True)

    def demand(self, name: str) -> None:
        """More steps wait for a fault point than the actor knows of."""
        view = self.views.get(name)
        if view is not None:
            self._news(view, outcome=not view.waiting)

    def due(self) -> list[View]:
        """Lets lapse what has lapsed, and returns the points about which a report is to be made."""
        now_ms = self._around.log_ms
        found: list[View] = []
        for view in list(self.views.values()):
            if view.lapse(now_ms) and not view.due_ms:
                view.due_ms = now_ms
            if view.due_ms and view.due_ms <= now_ms:
                found.append(view)
            elif self._watched_enough(view):
                self._forget(view)
        if not found:
            self._reckon()
        return found

    def report(self, view: View, partition: int, offset: int, index: int) -> FaultReport:
        """The report about a point; from here on it counts afresh."""
        waiting = self.waiting(view.name)
        running = len(self._running.get(view.name, ()))
        span = self.spans.get(dependency_of(view.name))
        made = view.report(
            partition,
            waiting=waiting,
            running=running,
            usual_ms=span.usual_ms if span is not None else 0,
            offset=offset,
            index=index,
        )
        view.reported(
            self._around.log_ms, waiting, alive=view.holds and bool(waiting or running or view.hand)
        )
        if self._watched_enough(view):
            self._forget(view)
        else:
            self._reckon()
        return made

    def _watched_enough(self, view: View) -> bool:
        """Whether a point that holds nothing has nothing to say, and has not failed for a while."""
        if view.holds or view.due_ms:
            return False
        return self._around.log_ms - view.failed_ms >= WATCH_MS

    def _view(self, name: str) -> View | None:
        view = self.views.get(name)
        if view is None and len(self.views) < VIEWS_MAX and not name_fault(name):
            view = self.views[name] = View(name=name)
        return view

    def _forget(self, view: View) -> None:
        del self.views[view.name]
        self._running.pop(view.name, None)
        self._reckon()

    def _sort(self, view: View) -> None:
        dependency = dependency_of(view.name)
        held = [each for each in self.holding.get(dependency, ()) if each is not view]
        if view.holds:
            held.append(view)
        if held:
            self.holding[dependency] = held
        else:
            self.holding.pop(dependency, None)

    def _news(self, view: View, *, outcome: bool) -> None:
        view.news(self._around.log_ms, self._around.policy.fault_report_ms, outcome=outcome)
        self._plan(view)

    def _plan(self, view: View) -> None:
        if view.due_ms:
            self.due_ms = min(self.due_ms, view.due_ms)
        elif not view.holds:
            self.due_ms = min(self.due_ms, view.failed_ms + WATCH_MS)
        if view.hand:
            self.due_ms = min(self.due_ms, view.hand[0][0])

    def _reckon(self) -> None:
        self.due_ms = NEVER
        for view in self.views.values():
            self._plan(view)

    def part(self) -> PointsPart:
        """What a checkpoint keeps."""
        return PointsPart(
            views=list(self.views.values()),
            spans=list(self.spans.items()),
            streaks=self.streaks.pack(),
        )

    def load(self, part: PointsPart) -> None:
        """As it was; attempts that are out come with their rows (`took_off`)."""
        self.views = {view.name: view for view in part.views}
        self.spans = dict(part.spans)
        self.streaks.load(part.streaks)
        for view in part.views:
            if view.holds:
                self._sort(view)
        self._reckon()


def _name(view: View) -> str:
    return view.name
