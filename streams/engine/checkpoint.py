"""Checkpoints of one partition: captured at once, written behind, one at a time, fenced.

Order of a checkpoint:
1. capture, synchronously: the parts changed since the last one, at exactly position X;
2. wait until every output of the events below X is acknowledged;
3. one transaction with the parts, by the producer that a newer owner would have fenced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dalsegno.streams.engine.errors import EngineError, FencedError, OutcomeUnknownError
from dalsegno.streams.engine.fence import FencedProducer
from dalsegno.streams.engine.fold import Clock, Fold
from dalsegno.streams.engine.outputs import Outputs
from dalsegno.streams.engine.settings import EngineSettings


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """What a checkpoint was: seconds from capture to commit, records and bytes written."""

    position: int
    took_s: float
    records: int
    size_bytes: int


class Pace(NamedTuple):
    """When a checkpoint is due: so long after the last, or once so many events were applied.

    `bytes_max`: of events, for which one comes at the latest: what it writes is about as much, and
    has to be through before its transaction times out.
    """

    interval_s: float
    events_max: int
    bytes_max: int

    @classmethod
    def of(cls, settings: EngineSettings) -> Pace:
        """As it is set."""
        return cls(
            settings.checkpoint_interval_ms / 1_000,
            settings.checkpoint_events_max,
            settings.checkpoint_bytes_max,
        )


class Keeper(Protocol):
    """Who keeps what was committed, beside the changelog. Its calls neither block nor raise."""

    def captured(self) -> None:
        """A checkpoint has been captured."""

    def keep(self, parts: Sequence[tuple[bytes, bytes | None]], position: int | None) -> None:
        """It is committed; `position` is the offset behind it, None if it is not known."""


class Checkpointer:
    """Writes checkpoints of one fold. `failed` is called once; `done` after each commit."""

    def __init__(
        self,
        fold: Fold,
        outputs: Outputs,
        producer: FencedProducer,
        changelog: tuple[str, int],
        *,
        pace: Pace,
        failed: Callable[[EngineError], None],
        done: Callable[[CheckpointDone], None],
        clock: Clock,
        keeper: Keeper | None = None,
    ) -> None:
        self._fold = fold
        self._outputs = outputs
        self._producer = producer
        self._changelog = changelog
        self._pace = pace
        self._bytes = 0  # of events applied since the last capture
        self._failed = failed
        self._done = done
        self._clock = clock
        self._keeper = keeper
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._captured = fold.position
        self._captured_at = clock()
        self._closed = False
        self.position = fold.position
        self.committed_at = clock()
        self.ever_committed = False
        self._dirty_since = clock()
        self._applied = fold.position

    @property
    def behind(self) -> int:
        """Events applied since the last capture."""
        return self._fold.position - self._captured

    def unsaved_s(self, now_s: float) -> float:
        """For how long something applied has not been in a checkpoint, in seconds; 0 if nothing
        is.
        """
        return max(0.0, now_s - self._dirty_since) if self._fold.position != self.position else 0.0

    @property
    def full(self) -> bool:
        """Whether the fold has to wait: a checkpoint is under way and the next is over its
        bound.
        """
        return self._running is not None and self._over()

    def _over(self) -> bool:
        return self.behind > self._pace.events_max or self._bytes > self._pace.bytes_max

    def applied(self, size_bytes: int = 0) -> None:
        """Events of this size were applied: see that a checkpoint follows."""
        self._bytes += size_bytes
        if self._applied == self.position:
            self._dirty_since = self._clock()
        self._applied = self._fold.position
        if self._closed or self._running is not None:
            return
        if self._over():
            self._capture()
        elif self._timer is None:
            wait_s = max(0.0, self._captured_at + self._pace.interval_s - self._clock())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._capture)

    def _capture(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed or self._running is not None or self.behind == 0:
            return
        self._captured_at = self._clock()
        self._captured = self._fold.position
        self._bytes = 0
        if self._keeper is not None:
            self._keeper.captured()
        try:
            parts = self._fold.capture()
        except Exception as error:  # noqa: BLE001 - a capture cut short must not be followed by another
            self._give_up(OutcomeUnknownError(f"capture: {error!r}"))
            return
        write = self._write(self._captured, parts, self._outputs.queued())
        self._running = asyncio.create_task(write)

    async def _write(
        self, position: int, parts: list[tuple[bytes, bytes | None]], queued: dict[str, int]
    ) -> None:
        try:
            await self._written(position, parts, queued)
        except (FencedError, OutcomeUnknownError) as error:
            self._give_up(error)
        except Exception as error:  # noqa: BLE001 - the boundary of this task: nobody awaits it
            self._give_up(OutcomeUnknownError(f"checkpoint: {error!r}"))

    async def _written(
        self, position: int, parts: list[tuple[bytes, bytes | None]], queued: dict[str, int]
    ) -> None:
        started = self._clock()
        await self._outputs.acknowledged(queued)
        ends = await self._producer.commit({self._changelog: parts})
        if self._keeper is not None:
            self._keeper.keep(parts, ends.get(self._changelog))
        self.position = position
        self.ever_committed = True
        self.committed_at = self._clock()
        size = sum(len(key) + len(value or b"") for key, value in parts)
        self._running = None  # who waits for it asks whether he may go on as soon as he is told
        self._done(CheckpointDone(position, self.committed_at - started, len(parts), size))
        if self.behind:
            self.applied()

    def _give_up(self, error: EngineError) -> None:
        self.spoil()
        self._failed(error)

    def spoil(self) -> None:
        """Capture nothing more: the fold raised inside a record, so its state is of no position."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def settle(self, timeout_s: float) -> bool:
        """A final checkpoint, so that the next owner repeats nothing. False if it was not in
        time.
        """
        deadline = self._clock() + timeout_s
        for _ in range(2):  # one may be under way; the second is then captured at the end
            self._capture()
            if self._running is None or self._closed:
                break
            await asyncio.wait([self._running], timeout=max(0.0, deadline - self._clock()))
        return not self._closed and self.position == self._fold.position

    async def close(self) -> None:
        """Stop; what is under way is abandoned, its outcome is for the next restore to see."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        running = self._running
        if running is not None and running is not asyncio.current_task():
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
