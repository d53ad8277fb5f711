"""A flow for each trace: the step of a task sleeps as long as the task ran, scaled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from dalsegno.client import Context, Flow
from examples.workflow_trace.traces import Trace, read

Body = Callable[[Context], Awaitable[None]]


def scale(trace: Trace, width: int, seconds: float) -> Trace:
    """The trace with its bound on `width` workers brought to `seconds`."""
    return trace.scaled(seconds / trace.bound_s(width))


def flow_of(trace: Trace) -> Flow:
    """Step names are the places of the tasks: task ids of the traces can be long."""
    flow = Flow(trace.instance, ttl="24h")
    names = {task.id: f"t{place}" for place, task in enumerate(trace.tasks)}
    for task in trace.tasks:
        declare = flow.step(
            name=names[task.id],
            needs=[names[parent] for parent in dict.fromkeys(task.parents)],
            reads=[],
            writes=[],
            timeout=f"{max(10, int(task.runtime_s * 3))}s",
        )
        declare(_sleeper(task.runtime_s))
    return flow


def _sleeper(runtime_s: float) -> Body:
    async def body(ctx: Context) -> None:
        del ctx
        await asyncio.sleep(runtime_s)

    return body


warm_up = Flow("warm-up")
"""One empty step: its end shows that the worker has its place."""


@warm_up.step(reads=[], writes=[])
async def nothing(ctx: Context) -> None:
    del ctx


def from_environment() -> Flow:
    """The flow that the example's worker runs: TRACE_INSTANCE, TRACE_WIDTH, TRACE_SECONDS."""
    wanted = os.environ["TRACE_INSTANCE"]
    trace = next(trace for trace in read() if trace.instance == wanted)
    width, seconds = int(os.environ["TRACE_WIDTH"]), float(os.environ["TRACE_SECONDS"])
    return flow_of(scale(trace, width, seconds))
