"""What the drivers of peers have in common: a client that outlives the server's crashes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from benchmarks.crash_lab.requests import until_held

AT_ONCE: Final = 10
RETRY_S: Final = 0.05
Value = TypeVar("Value")


async def until(
    work: Callable[[], Awaitable[Value]], away: type[Exception] | tuple[type[Exception], ...]
) -> Value:
    """Tries again while the server is away; who asked bounds the time."""
    while True:
        try:
            return await work()
        except away:
            await asyncio.sleep(RETRY_S)


class Driver(ABC):
    """Starts so many runs at a time, and waits for all results at once."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)

    @abstractmethod
    async def _start(self, run: str) -> None:
        """Start one; a second call changes nothing."""

    @abstractmethod
    async def _result(self, run: str) -> int:
        """Wait for that of one that was started."""

    async def submit(self, runs: Sequence[str]) -> None:
        """They stand at the gate when this returns: a slow server takes its time over it."""

        async def start(run: str) -> None:
            async with self._slots:
                await self._start(run)

        await asyncio.gather(*map(start, runs))
        await until_held(len(runs))

    async def result(self, run: str) -> int:
        return await self._result(run)
