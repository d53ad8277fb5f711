"""The crash workload as a flow: five steps in a row."""

from __future__ import annotations

from benchmarks.crash_lab.body import gate, step_body

from dalsegno.client import Context, Flow

flow = Flow("crash", version=1, ttl="1h")


async def _step(ctx: Context, number: int) -> dict[str, object]:
    if number == 0:
        await gate(ctx.run_id)
    return {f"r{number}": await step_body(ctx.run_id, number)}


@flow.step(reads=[], writes=["r0"], timeout="10m")
async def s0(ctx: Context) -> dict[str, object]:
    return await _step(ctx, 0)


@flow.step(needs=[s0], reads=[], writes=["r1"], timeout="60s")
async def s1(ctx: Context) -> dict[str, object]:
    return await _step(ctx, 1)


@flow.step(needs=[s1], reads=[], writes=["r2"], timeout="60s")
async def s2(ctx: Context) -> dict[str, object]:
    return await _step(ctx, 2)


@flow.step(needs=[s2], reads=[], writes=["r3"], timeout="60s")
async def s3(ctx: Context) -> dict[str, object]:
    return await _step(ctx, 3)


@flow.step(needs=[s3], reads=[], writes=["r4"], timeout="60s")
async def s4(ctx: Context) -> dict[str, object]:
    return await _step(ctx, 4)
