"""The crash workload on Restate, in an environment of its own; its argument is the port."""

from __future__ import annotations

import asyncio
import sys

import hypercorn.asyncio
import hypercorn.config
import restate
from benchmarks.crash_lab import body, requests

service = restate.Service("bench")
slots = asyncio.Semaphore(requests.IN_FLIGHT)


@service.handler()
async def flow(ctx: restate.Context, run: str) -> int:
    """Five steps in a row."""
    async with slots:
        await body.gate(run)
        total = 0
        for number in range(body.STEPS):
            total += await ctx.run_typed(f"s{number}", body.step_body, run=run, step=number)
    return total


app = restate.app([service])

if __name__ == "__main__":
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{sys.argv[1]}"]
    asyncio.run(hypercorn.asyncio.serve(app, config))
