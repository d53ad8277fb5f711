"""Engines with one deliberate break each, to see that the oracle finds it.

`slow` is no break: it only opens the windows in which the others do harm, and must be judged right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.encoding import OutRecord
from dalsegno.streams.engine.fence import Entries, FencedProducer, Place
from dalsegno.streams.engine.outputs import Outputs
from dalsegno.streams.engine.producers import Acked, IdempotentProducer

_LATE_S = 0.4


def _late(seconds: float) -> None:
    """Every output is given to the producer so much later, still in order."""
    send = IdempotentProducer.send

    def late_send(self: IdempotentProducer, record: OutRecord, acked: Acked) -> None:
        asyncio.get_running_loop().call_later(seconds, send, self, record, acked)

    IdempotentProducer.send = late_send  # type: ignore[method-assign]


def slow() -> None:
    """Outputs and checkpoints leave late."""
    commit = FencedProducer.commit

    async def late_commit(self: FencedProducer, writes: dict[Place, Entries]) -> None:
        await asyncio.sleep(_LATE_S)
        await commit(self, writes)

    _late(_LATE_S)
    FencedProducer.commit = late_commit  # type: ignore[assignment, method-assign]


def early_checkpoint() -> None:
    """Checkpoints do not wait until outputs are acknowledged."""

    async def at_once(self: Outputs, queued: dict[str, int]) -> None:
        return

    Outputs.acknowledged = at_once  # type: ignore[method-assign]
    _late(2.0)


def eager_marks() -> None:
    """What the output topics have is thought to reach a little further than it does."""

    def is_repeat(self: Outputs, channel: str, sequence: Sequence) -> bool:
        mark = self._marks.get(channel)
        return mark is not None and sequence.offset <= mark.offset + 3

    Outputs._is_repeat = is_repeat  # type: ignore[method-assign]


BREAKS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (slow, early_checkpoint, eager_marks)
}
