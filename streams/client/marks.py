"""How far a queue's group has taken handoffs: kept in the metadata of its committed offsets.

The text is `v1 <offset>.<index> <worker> <incarnation>`: the sequence of the highest handoff taken
(source offset and index, `-1.0` for none), and who committed it.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Final, NamedTuple

from dalsegno.schemas.liveness import Mark

_TEXT: Final = re.compile(r"v1 (-?\d+)\.(\d+) (\S+) (-?\d+)")


class Place(NamedTuple):
    """A sequence without its count: where a handoff stands among the outputs of its partition."""

    offset: int
    output: int


NOWHERE: Final = Place(-1, 0)


def mark_text(place: Place, worker: str, incarnation: int) -> str:
    """The metadata of a commit."""
    return f"v1 {place.offset}.{place.output} {worker} {incarnation}"


def parse_mark(text: str | None, queue: str, partition: int) -> Mark | None:
    """The mark in a committed offset's metadata; None for metadata that is not ours."""
    found = _TEXT.fullmatch(text or "")
    if found is None:
        return None
    offset, index, worker, incarnation = found.groups()
    return Mark(
        queue=queue,
        partition=partition,
        offset=int(offset),
        index=int(index),
        worker=worker,
        incarnation=int(incarnation),
    )


class Seen:
    """The highest epoch taken of each step, for the last `most` steps. A repeat is never
    started.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._epochs: OrderedDict[tuple[str, str], int] = OrderedDict()

    def is_new(self, run_id: str, step: str, epoch: int) -> bool:
        """Whether no epoch from this one on was taken here."""
        return epoch > self._epochs.get((run_id, step), -1)

    def add(self, run_id: str, step: str, epoch: int) -> None:
        """Remember it as taken; the oldest step beyond the bound is forgotten."""
        self._epochs[run_id, step] = epoch
        self._epochs.move_to_end((run_id, step))
        if len(self._epochs) > self._most:
            self._epochs.popitem(last=False)
