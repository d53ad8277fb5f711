"""When what is posted to a target next: pure, on a clock that is passed in (monotonic seconds).

One message is out at a time. When the target is in trouble nothing is posted until its next attempt
is due, and that is the oldest message; a message that is refused waits by itself, and the others go
on. A target that says it is gone hears nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from dalsegno.schemas.control import Webhook
from dalsegno.schemas.outputs import Escalation
from dalsegno.streams.agents.webhooks.message import Message
from dalsegno.streams.agents.webhooks.posting import Attempt, Posted

REFUSALS_MAX = 20
"""Attempts for a message that the target refuses as such: some hours at the usual pace."""

Place = tuple[int, int]
"""Partition and offset of a package in the escalations."""


@dataclass(slots=True)
class Waiting:
    """A package that has not been delivered."""

    place: Place
    package: Escalation = field(repr=False)
    message: Message = field(repr=False)
    attempts: int = 0
    refusals: int = 0
    due_s: float = 0.0


class Target:
    """What waits for one target. `jitter` gives a number from 0 to 1."""

    def __init__(self, hook: Webhook, jitter: Callable[[], float]) -> None:
        self.hook = hook
        self.gone = False
        self.detail = ""
        self._jitter = jitter
        self._waiting: dict[Place, Waiting] = {}
        self._failures = 0
        self._rests_until_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(list(self._waiting.values()))

    @property
    def bytes_waiting(self) -> int:
        """Bodies that are held."""
        return sum(len(each.message.body) for each in self._waiting.values())

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest package was made, Unix ms; None when nothing waits."""
        return min((each.package.at_ms for each in self._waiting.values()), default=None)

    def add(self, waiting: Waiting) -> None:
        """A package to be delivered."""
        self._waiting[waiting.place] = waiting

    def drop(self, place: Place) -> None:
        """It is settled, or another engine's."""
        self._waiting.pop(place, None)

    def next(self, now_s: float) -> Waiting | None:
        """What to post now, the oldest first; None while nothing may be."""
        if self.gone or now_s < self._rests_until_s:
            return None
        due = (each for each in self._waiting.values() if each.due_s <= now_s)
        return min(due, key=lambda each: (each.package.at_ms, each.place), default=None)

    def heard(self, waiting: Waiting, attempt: Attempt, now_s: float) -> bool:
        """What came of an attempt; True when the message is given up."""
        waiting.attempts += 1
        self.detail = attempt.detail
        if attempt.posted is Posted.DELIVERED:
            self._failures = 0
            return False
        if attempt.posted is Posted.GONE:
            self.gone = True
            return False
        if attempt.posted is Posted.REFUSED:
            self._failures = 0
            waiting.refusals += 1
            waiting.due_s = now_s + self._wait_s(waiting.refusals)
            if waiting.refusals >= REFUSALS_MAX:
                return True
        else:
            self._failures += 1
            wait_s = max(self._wait_s(self._failures), attempt.retry_after_s)
            self._rests_until_s = now_s + wait_s
        return waiting.attempts >= self.hook.attempts_max

    def _wait_s(self, failures: int) -> float:
        """Between half of the bound and the bound, which doubles with each failure."""
        hook = self.hook
        doubled = hook.retry_initial_ms << min(failures - 1, 40)
        bound_s = min(doubled, hook.retry_max_ms) / 1_000
        return bound_s * (1 + self._jitter()) / 2
