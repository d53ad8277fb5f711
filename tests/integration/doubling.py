"""A flow of one step, for tests of how the parts are connected."""

from __future__ import annotations

from dalsegno.client import Context, Flow

flow = Flow("doubling", version=1, ttl="10m")


@flow.step(reads=["amount"], writes=["doubled"])
async def double(ctx: Context) -> dict[str, object]:
    """Twice the amount."""
    return {"doubled": 2 * ctx.read("amount", int)}
