"""Temporal's client, in an environment of its own."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from benchmarks.crash_lab import requests
from benchmarks.crash_lab.driving import Driver, until
from temporalio.client import Client
from temporalio.service import RPCError

QUEUE: Final = "crash"
FLOW: Final = "crash"


async def connected() -> Client:
    """A client, once the server answers."""

    async def connect() -> Client:
        client = await Client.connect(os.environ["TEMPORAL_SERVER"])
        await client.count_workflows()  # its namespace is made a moment after it answers
        return client

    return await until(connect, (RuntimeError, RPCError))


class Temporal(Driver):
    """Workflows, by the run's name."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    async def _start(self, run: str) -> None:
        await self._client.start_workflow(FLOW, run, id=run, task_queue=QUEUE)

    async def _result(self, run: str) -> int:
        return await until(self._client.get_workflow_handle(run, result_type=int).result, RPCError)


async def main(answers: int) -> None:
    await requests.serve(Temporal(await connected()), answers)


if __name__ == "__main__":
    asyncio.run(main(requests.keep_answers_apart()))
