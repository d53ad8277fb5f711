"""The way most services work: call the next one, try again a few times, then give up.

Same services, same faults, same idempotency keys in every try. Each call is tried three times with
growing waits; what was done before a failure stays done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dalsegno.client import DependencyDown, Permanent, Transient
from dalsegno.streams.core.effects import effect_key, recovery_key
from examples.order import calls
from examples.order.rules import SERVICES, Order

TRIES = 3
_FIRST_WAIT_S = 0.2
_AT_ONCE = 100


async def carry_out(orders: Sequence[Order]) -> int:
    """Carries all orders out; returns how many came to their end."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(order: Order) -> bool:
        async with room:
            return await _order(order)

    ended = sum(await asyncio.gather(*map(one, orders)))
    await calls.services.close()
    return ended


async def _order(order: Order) -> bool:
    for service in SERVICES:
        if not await _call(service, order):
            return False
    return True


async def _call(service: str, order: Order) -> bool:
    key = effect_key(recovery_key(order.name, service), "do", 0)
    for number in range(TRIES):
        try:
            await calls.do(service, order.facts(), key=key, epoch=1)
        except (DependencyDown, Transient):
            await asyncio.sleep(_FIRST_WAIT_S * 2**number)
        except Permanent:
            return False
        else:
            return True
    return False
