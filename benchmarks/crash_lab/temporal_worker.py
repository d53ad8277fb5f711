"""The crash workload on Temporal, in an environment of its own."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from temporalio import activity, workflow
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from benchmarks.crash_lab import body, requests
    from benchmarks.crash_lab.temporal_driver import FLOW, QUEUE, connected

AT_ONCE: Final = requests.IN_FLIGHT
# Each run at the gate holds one, and the worker keeps some for runs that it has seen before: with
# no more than there are runs, the last never come to the gate.
WORKFLOW_TASKS: Final = AT_ONCE + 50
GATE_MAX: Final = timedelta(minutes=10)
STEP_MAX: Final = timedelta(seconds=5)
# A step whose worker died is noticed when a heartbeat is missed: the quickest of its settings.
HEARTBEAT_MAX: Final = timedelta(seconds=1)


@activity.defn
async def at_gate(run: str) -> None:
    await body.gate(run)


@activity.defn
async def step(run: str, number: int) -> int:
    return await body.step_body(run, number)


@workflow.defn(name=FLOW)
class Flow:
    """Five steps in a row. The gate is a local activity, so that it costs no task of its own."""

    @workflow.run
    async def run(self, run: str) -> int:
        await workflow.execute_local_activity(at_gate, run, start_to_close_timeout=GATE_MAX)
        total = 0
        for number in range(body.STEPS):
            total += await workflow.execute_activity(
                step,
                args=[run, number],
                start_to_close_timeout=STEP_MAX,
                heartbeat_timeout=HEARTBEAT_MAX,
            )
        return total


async def main() -> None:
    worker = Worker(
        await connected(),
        task_queue=QUEUE,
        workflows=[Flow],
        activities=[at_gate, step],
        max_concurrent_activities=AT_ONCE,
        max_concurrent_workflow_tasks=WORKFLOW_TASKS,
        max_concurrent_local_activities=AT_ONCE,
    )
    await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
