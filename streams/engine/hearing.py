"""Whether the liveness path of this engine works: its monitors must hear their own canaries.

While the broker is away, or the events themselves are behind, silence is no fault of the monitor:
only the time since the events were last behind counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from dalsegno.streams.engine.monitor import MonitorFigures


class _Feed(Protocol):
    def figures(self) -> MonitorFigures | None:
        """None of a monitor that has failed."""


class Watched(Protocol):
    """A partition task, as far as it matters here."""

    @property
    def number(self) -> int:
        """The partition."""

    @property
    def feed(self) -> _Feed | None:
        """What feeds its monitor."""

    def caught_up(self) -> bool:
        """Whether its events were read to their end within the last second."""


class Hearing:
    """`look` has to be called several times a second. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._behind_s: dict[int, float] = {}

    def look(self, tasks: Iterable[Watched], now_s: float) -> None:
        """Note which partitions are not at their log's end. A new one counts as behind."""
        before, self._behind_s = self._behind_s, {}
        for task in tasks:
            last_s = before.get(task.number)
            self._behind_s[task.number] = (
                now_s if last_s is None or not task.caught_up() else last_s
            )

    def deaf_s(self, tasks: Iterable[Watched], now_s: float) -> Mapping[int, float]:
        """By partition with a monitor, for how long it has heard no canary although the log's end
        was read all the time.
        """
        found: dict[int, float] = {}
        for task in tasks:
            figures = task.feed.figures() if task.feed is not None else None
            if figures is not None:
                since_s = now_s - self._behind_s.get(task.number, now_s)
                found[task.number] = max(0.0, min(figures.canary_age_s, since_s))
        return found
