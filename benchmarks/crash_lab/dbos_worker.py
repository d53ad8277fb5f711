"""The crash workload on DBOS, which recovers by itself when it is launched. Its argument is the
address of the database.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from benchmarks.crash_lab import body, requests
from dbos import DBOS, SetWorkflowID, WorkflowHandleAsync

POLL_S = 0.05
slots = asyncio.Semaphore(requests.IN_FLIGHT)


@DBOS.step()
async def one(run: str, step: int) -> int:
    """The body, as a step of DBOS."""
    return await body.step_body(run, step)


@DBOS.workflow()
async def flow(run: str) -> int:
    """Five steps in a row."""
    async with slots:
        await body.gate(run)
        return sum([await one(run, step) for step in range(body.STEPS)])


class Engine:
    """Workflows of DBOS, by the run's name."""

    def __init__(self) -> None:
        self._handles: dict[str, WorkflowHandleAsync[int]] = {}
        self._polling = asyncio.Lock()

    async def submit(self, runs: Sequence[str]) -> None:
        for run in runs:
            with SetWorkflowID(run):
                self._handles[run] = await DBOS.start_workflow_async(flow, run)

    async def result(self, run: str) -> int:
        if run in self._handles:
            return await self._handles[run].get_result()
        async with self._polling:  # the database is asked for one at a time, not 200 times as often
            recovered: WorkflowHandleAsync[int] = await DBOS.retrieve_workflow_async(run)
            return await recovered.get_result(polling_interval_sec=POLL_S)


async def main(address: str, answers: int) -> None:
    DBOS(
        config={
            "name": "crash",
            "system_database_url": address,
            "application_version": "1",
            "executor_id": "worker",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()  # where a loop runs: recovered workflows run in it too
    await requests.serve(Engine(), answers)
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], requests.keep_answers_apart()))
