"""Numbers the outputs of the record that is being applied."""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.streams.core.actions import Action, Output
from dalsegno.streams.core.sequence import Sequence

# Past the Python-level `__new__` of the named tuple: three outputs an event.
_new: Callable[[type[Sequence], tuple[int, int, int]], Sequence] = tuple.__new__


class Outbox:
    """Outputs of one record, in order, each with its sequence.

    `counts` holds the dense count per channel: part of the state. A unit that is discarded takes
    its outputs back, numbers included.
    """

    __slots__ = ("counts", "items", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self.items: list[Output] = []
        self.counts: dict[str, int] = {}

    def next(self, channel: str) -> Sequence:
        """The sequence that the next output of a channel gets."""
        return Sequence(self.offset, len(self.items), self.counts.get(channel, 0) + 1)

    def put(self, channel: str, action: Action) -> Sequence:
        """Appends an output and returns its sequence."""
        count = self.counts.get(channel, 0) + 1
        self.counts[channel] = count
        sequence = _new(Sequence, (self.offset, len(self.items), count))
        self.items.append(Output(sequence, action))
        return sequence

    def rollback(self, mark: int) -> None:
        """Takes back all outputs from the one at `mark` on."""
        items = self.items
        while len(items) > mark:
            channel = items.pop().action.channel
            count = self.counts[channel] - 1
            if count:
                self.counts[channel] = count
            else:
                del self.counts[channel]

    def take(self) -> list[Output]:
        """Hands the outputs of the record over."""
        items = self.items
        self.items = []
        return items
