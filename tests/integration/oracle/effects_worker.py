"""`python -m tests.integration.oracle.effects_worker NAME RECEIVER`: effects over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request

from dalsegno.client import Context, Effect, Flow, Worker

flow = Flow("effects", version=1, ttl="30m")
STEPS = ("reserve", "charge", "notify")
EFFECTS = ("first", "second")


async def ask(effect: Effect) -> str:
    """The receiver's result: the first one for this key, whoever asks."""
    call = {
        "run_id": effect.run_id,
        "step": effect.step,
        "effect": effect.name,
        "occurrence": effect.occurrence,
        "key": effect.key,
        "epoch": effect.epoch,
    }
    request = urllib.request.Request(sys.argv[2], json.dumps(call).encode())
    return await asyncio.to_thread(_post, request)


def _post(request: urllib.request.Request) -> str:
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(json.load(answer))


async def both(ctx: Context) -> list[object]:
    results: list[object] = []
    for name in EFFECTS:
        await asyncio.sleep(0.15)  # so that a kill or a freeze finds steps at every stage
        results.append(await ctx.effect(name, ask))
    return results


@flow.step(reads=[], writes=["reserve"], timeout="2m")
async def reserve(ctx: Context) -> dict[str, object]:
    return {"reserve": await both(ctx)}


@flow.step(needs=[reserve], reads=[], writes=["charge"], timeout="2m")
async def charge(ctx: Context) -> dict[str, object]:
    return {"charge": await both(ctx)}


@flow.step(needs=[charge], reads=[], writes=["notify"], timeout="2m")
async def notify(ctx: Context) -> dict[str, object]:
    return {"notify": await both(ctx)}


if __name__ == "__main__":
    Worker([flow], name=sys.argv[1], concurrency=8).run()
