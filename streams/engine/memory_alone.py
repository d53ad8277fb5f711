"""A partition whose database cannot be made, though the engine has a data folder.

All of it is in memory, and counts there: the hard bound holds for it too. Now and then it looks
whether the disk takes a database again; then the partition is opened anew, with one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from dalsegno.storage.ports import TableStat
from dalsegno.streams.core.warm import WarmLost
from dalsegno.streams.engine.batch import Batch
from dalsegno.streams.engine.sinks import UNPACKED
from dalsegno.streams.engine.warm_partition import Parts
from dalsegno.streams.engine.warm_tier import WarmTier

_LOOK_S: Final = 60.0


class MemoryAlone:
    """`sizes`: of the parts by key, packed. `again` is called once: to be opened anew."""

    oldest: None = None
    outside = 0
    unsaved = 0
    bytes_waiting = 0

    def __init__(
        self,
        tier: WarmTier,
        sizes: Mapping[bytes, int],
        *,
        again: Callable[[WarmLost], None],
        moved: Callable[[], None],
    ) -> None:
        self._tier = tier
        self._sizes = dict(sizes)
        self._bytes = sum(self._sizes.values())
        self._again = again
        self.moved = moved
        self._looking = asyncio.create_task(self._look())
        tier.sides.add(self)

    @property
    def bytes_held(self) -> int:
        """What its runs take, estimated from their packed size."""
        return UNPACKED * self._bytes

    def leave(self, bytes_wanted: int, until: int) -> int:  # noqa: ARG002 - the port's shape
        """None can."""
        return 0

    def full(self) -> bool:
        """Whether nothing more may be taken, by all partitions of the engine."""
        return self._tier.full()

    async def forget(self) -> bool:
        """Not now: what the database that was given up holds is not known to be gone."""
        return False

    def stat(self) -> TableStat:
        """There is no database."""
        return TableStat()

    def ahead(self, batch: Batch, then: Callable[[], None]) -> None:  # noqa: ARG002 - as above
        """All are in memory."""
        then()

    def captured(self) -> None:
        """Nothing is kept beside the changelog."""

    def keep(self, parts: Parts, position: int | None) -> None:  # noqa: ARG002 - the port's shape
        """A checkpoint is committed: its parts are the newest."""
        for key, value in parts:
            self._bytes -= self._sizes.pop(key, 0)
            if value is not None:
                self._sizes[key] = size = len(key) + len(value)
                self._bytes += size

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if await asyncio.to_thread(self._tier.disk_takes):
                self.lost(WarmLost("the disk takes a database again: opened anew"))
                return

    def lost(self, error: WarmLost) -> None:
        """It cannot go on as it is."""
        self._again(error)

    async def close(self) -> None:
        """Its memory is free again."""
        self._tier.sides.discard(self)
        self._tier.balance()
        if self._looking is not asyncio.current_task():
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
