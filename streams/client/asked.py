"""An effect's question to the service, which has to be answered before the effect is done.

Answers name no effect, and come again when an engine is restored. So one counts by the event that
it answers: it carries the offset of that, and the acknowledgement says where the question stands.
"""

from __future__ import annotations

import asyncio

from dalsegno.schemas.outputs import Answer


class Asked:
    """One question, perhaps asked several times. On the loop of `answer`."""

    def __init__(self, answer: asyncio.Future[Answer]) -> None:
        self.answer = answer
        self._offsets: set[int] = set()
        self._heard: dict[int, Answer] = {}

    def stands_at(self, offset: int) -> None:
        """The question stands in the log there."""
        self._offsets.add(offset)
        if offset in self._heard:
            self.hear(self._heard[offset], offset)

    def hear(self, answer: Answer, offset: int) -> bool:
        """An answer to the event at `offset` (-1: it does not say). Whether that is this question,
        as far as is known: the acknowledgement may be still on its way.
        """
        if offset >= 0 and offset not in self._offsets:
            self._heard[offset] = answer
            return False
        if not self.answer.done():
            self.answer.set_result(answer)
        return True
