"""One loop looks after all actors of an engine: a fault of one costs the others nothing."""

from __future__ import annotations

import asyncio

from dalsegno.streams.agents.faults import FaultsService


class Owed:
    """An actor that always owes a tick. `faulty`: it raises, when asked or in the tick."""

    fold = None

    def __init__(self, number: int, faulty: str = "") -> None:
        self.number = number
        self.ticked = asyncio.Event()
        self._faulty = faulty

    def tick_owed(self) -> bool:
        if self._faulty == "asked":
            raise RuntimeError("a fault of ours")
        return True

    async def tick(self) -> None:
        if self._faulty == "ticks":
            raise RuntimeError("a fault of ours")
        self.ticked.set()


async def test_an_actor_that_raises_keeps_no_other_from_its_ticks() -> None:
    service = FaultsService()
    well = Owed(2)
    service.actors = {0: Owed(0, "asked"), 1: Owed(1, "ticks"), 2: well}  # type: ignore[dict-item]
    looking = asyncio.create_task(service._look(None))  # type: ignore[arg-type]
    async with asyncio.timeout(30):
        for _ in range(2):
            await well.ticked.wait()
            well.ticked.clear()
    assert not looking.done()
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
