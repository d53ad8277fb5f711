"""Appends a clock tick, and tells the plan of ticks what became of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from dalsegno.schemas.control import ClockTick, ControlEvent
from dalsegno.streams.engine.errors import EngineError
from dalsegno.streams.engine.fold import Clock
from dalsegno.streams.engine.producers import Appended
from dalsegno.streams.engine.ticks import TickPlan

log = structlog.get_logger(__name__)


async def append_tick(
    ticks: TickPlan,
    tick: ClockTick,
    append: Callable[[ControlEvent], Awaitable[Appended]],
    clock: Clock,
) -> None:
    """One that cannot be appended is logged: the plan says when the next is due."""
    ticks.sent(clock())
    try:
        appended = await append(tick)
    except EngineError as error:
        ticks.failed(clock())
        log.warning("tick not appended", partition=tick.partition, error=str(error))
        return
    except BaseException:
        ticks.failed(clock())  # else this partition would never tick again
        raise
    ticks.appended(appended.timestamp, clock())
