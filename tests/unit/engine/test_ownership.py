"""Which partitions an engine takes over, and when it does not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from dalsegno.streams.engine.ownership import Ownership


class Settling:
    """A partition task whose last checkpoint takes its time."""

    def __init__(self, meanwhile: Any) -> None:
        self.number, self.state, self.closed = 0, "ready", 0
        self._meanwhile = meanwhile

    async def settle(self, _timeout_s: float) -> None:
        self._meanwhile()

    async def close(self) -> None:
        self.closed += 1


async def test_an_engine_that_is_stopping_takes_nothing_over() -> None:
    """Nobody would close it, and its fence would shut the next owner out for nothing."""
    settings = SimpleNamespace(stop_timeout_ms=1_000, restores_at_once=1)
    group = SimpleNamespace(wake=lambda: None)
    context: Any = SimpleNamespace(settings=settings, joined=lambda: group)
    ownership = Ownership(context, asyncio.get_running_loop())
    opened: list[int] = []
    ownership._open = opened.append  # type: ignore[method-assign]
    task = Settling(lambda: ownership.assigned({0, 1}))
    ownership.tasks[0] = task  # type: ignore[assignment]
    await ownership.close()
    assert opened == []
    assert task.closed == 1
