"""A flow of one step with one effect, at the service behind the proxy (`dependency`).

The service honours the idempotency key, so an effect whose answer was lost is not done again.
"""

from __future__ import annotations

from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout
from benchmarks.outage_lab.service import KEY_HEADER
from tests.chaos.inside.dependency import PROXY_PORT

from dalsegno.client import Context, DependencyDown, Flow

flow = Flow("paid", version=1, ttl="30m")
_URL: Final = f"http://dependency:{PROXY_PORT}"
_TIMEOUT: Final = ClientTimeout(total=1.0)


async def pay(run_id: str, *, key: str, epoch: int) -> dict[str, object]:
    """Ask the service once. Raises `DependencyDown`."""
    headers = {KEY_HEADER: key, "Epoch": str(epoch)}
    try:
        async with (
            ClientSession(timeout=_TIMEOUT) as session,
            session.post(f"{_URL}/do/{run_id}", headers=headers) as answer,
        ):
            if answer.status == 503:
                raise DependencyDown("validation", retry_after=f"{answer.headers['Retry-After']}s")
            return {"answer": await answer.text()}
    except (ClientError, OSError, TimeoutError) as error:
        raise DependencyDown("validation", message=repr(error)) from error


@flow.step(reads=[], writes=["answer"], depends_on=["validation"], timeout="20s")
async def charge(ctx: Context) -> dict[str, object]:
    answer: dict[str, object] = await ctx.effect("pay", pay, ctx.run_id)
    return answer
