"""What was learned, by step type and worker class."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.liveness.detector import Detector
from dalsegno.streams.core.liveness.pace import Pace
from dalsegno.streams.core.liveness.settings import DEFAULT_HEARTBEAT_MS

DetectorFactory = Callable[[], Detector]


class Learned:
    """Gaps and stretches of one step type on one worker class, whatever its plans declare."""

    __slots__ = ("gaps", "pace")

    def __init__(self, gaps: Detector) -> None:
        self.gaps = gaps
        self.pace = Pace()


class Kind:
    """A `Learned` with the interval and the limit that a plan declares; shared by its attempts."""

    __slots__ = ("interval_ms", "learned", "limit_ms")

    def __init__(self, learned: Learned, interval_ms: int, limit_ms: int) -> None:
        self.learned = learned
        self.interval_ms = interval_ms
        self.limit_ms = limit_ms

    def dead_ms(self) -> int:
        """Silence (ms) beyond which a step of this kind is dead."""
        return self.learned.gaps.dead_ms(self.interval_ms)

    def suspect_ms(self) -> int:
        """Silence (ms) beyond which a step of this kind is suspect."""
        return self.learned.gaps.suspect_ms(self.interval_ms)

    def slow_ms(self) -> int | None:
        """Time without progress (ms) beyond which a step of this kind is stuck."""
        return self.learned.pace.slow_ms(self.limit_ms)


class Kinds:
    """At most so many of each, the least recently started forgotten first.

    The worker class is the queue that the step is handed out by (its workers are one deployment);
    steps that services run themselves are a class of their own.
    """

    __slots__ = ("_kinds", "_learned", "_max", "_new_detector")

    def __init__(self, kinds_max: int, new_detector: DetectorFactory) -> None:
        self._max = kinds_max
        self._new_detector = new_detector
        self._learned: OrderedDict[tuple[str, str], Learned] = OrderedDict()
        self._kinds: OrderedDict[tuple[str, str, int, int], Kind] = OrderedDict()

    def __len__(self) -> int:
        return len(self._learned)

    def of(self, attempt: Attempt) -> Kind:
        """The kind of an attempt. Without a declared heartbeat interval the default holds."""
        interval_ms = attempt.heartbeat_ms if attempt.heartbeat_ms > 0 else DEFAULT_HEARTBEAT_MS
        key = (attempt.step_type, attempt.queue, interval_ms, attempt.timeout_ms)
        kind = self._kinds.get(key)
        learned = self._learned.get(key[:2])
        if learned is None:
            learned = self._learned[key[:2]] = Learned(self._new_detector())
            if len(self._learned) > self._max:
                self._learned.popitem(last=False)
        else:
            self._learned.move_to_end(key[:2])
        if kind is None or kind.learned is not learned:
            kind = self._kinds[key] = Kind(learned, interval_ms, attempt.timeout_ms)
            if len(self._kinds) > self._max:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(key)
        return kind
