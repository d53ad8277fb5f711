"""The crash workload on LittleHorse, in an environment of its own."""

from __future__ import annotations

import asyncio
from typing import Final

import littlehorse
from benchmarks.crash_lab import body
from littlehorse.config import LHConfig
from littlehorse.model import VariableMutationType
from littlehorse.worker import LHTaskWorker
from littlehorse.workflow import Workflow, WorkflowThread

TASK: Final = "step"
GATE: Final = "gate"
FLOW: Final = "crash"
RESULT: Final = "result"
# A step whose worker died is noticed by this alone; whole seconds are its finest.
STEP_S_MAX: Final = 1
GATE_S_MAX: Final = 600
RETRIES: Final = 10


async def at_gate(run: str) -> int:
    """A task of its own: the first step is noticed to be lost as soon as any other."""
    await body.gate(run)
    return 0


async def step(run: str, number: int) -> int:
    return await body.step_body(run, number)


def flow(thread: WorkflowThread) -> None:
    """Five steps in a row; the result is an event, which a client can wait for."""
    run = thread.declare_str("run")
    total = thread.declare_int("total", default_value=0)
    thread.execute(GATE, run, timeout_seconds=GATE_S_MAX, retries=RETRIES)
    for number in range(body.STEPS):
        said = thread.execute(TASK, run, number, timeout_seconds=STEP_S_MAX, retries=RETRIES)
        thread.mutate(total, VariableMutationType.ADD, said)
    thread.throw_event(RESULT, total, return_type=int)


def register() -> None:
    """Tell the server of gate, step and flow; the same again changes nothing."""
    config = LHConfig()
    littlehorse.create_task_def(at_gate, GATE, config)
    littlehorse.create_task_def(step, TASK, config)
    littlehorse.create_workflow_spec(Workflow(FLOW, flow), config)


if __name__ == "__main__":
    asyncio.run(
        littlehorse.start(
            LHTaskWorker(at_gate, GATE, LHConfig()), LHTaskWorker(step, TASK, LHConfig())
        )
    )
