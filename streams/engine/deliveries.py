"""Batches that were handed to Faust's agents and that no agent has begun yet.

Faust drops what its queues hold when it resumes its flow, and skips what was queued under another
generation or while the flow was suspended. The task that asked for such a batch would wait for it
for ever, so a batch that nobody began in time is asked for anew.
"""

from __future__ import annotations

from typing import Final

from dalsegno.streams.engine.batch import Batch

OVERDUE_S: Final = 1.0
OVERDUE_CYCLES: Final = 3
"""Both must have passed: an event loop that stood still says nothing about a batch."""


class Deliveries:
    """What is under way. At most one batch of a partition and topic is."""

    def __init__(self) -> None:
        self._open: list[tuple[Batch, float, int]] = []
        self._cycles = 0

    def sent(self, batch: Batch, now_s: float) -> None:
        """The batch is in an agent's queue."""
        self._open.append((batch, now_s, self._cycles))

    def overdue(self, now_s: float) -> list[Batch]:
        """Once per cycle: batches that no agent has begun in time. Each is named once."""
        self._cycles += 1
        late: list[Batch] = []
        left: list[tuple[Batch, float, int]] = []
        for batch, sent_s, cycle in self._open:
            if batch.begun:
                continue
            if now_s - sent_s >= OVERDUE_S and self._cycles - cycle > OVERDUE_CYCLES:
                late.append(batch)
            else:
                left.append((batch, sent_s, cycle))
        self._open = left
        return late
