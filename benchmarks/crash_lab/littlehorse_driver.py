"""LittleHorse's client, in an environment of its own."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Final

import grpc
from benchmarks.crash_lab import requests
from benchmarks.crash_lab.driving import Driver, until
from benchmarks.crash_lab.littlehorse_worker import FLOW, GATE, RESULT, TASK, register
from littlehorse import to_variable_value
from littlehorse.model import (
    AwaitWorkflowEventRequest,
    LittleHorseStub,
    RunWfRequest,
    TaskDefId,
    WfRunId,
    WfSpecId,
    WorkflowEventDefId,
)

CALL_S_MAX: Final = 30
# By default a channel tries to come back ever more rarely, at last every two minutes.
CHANNEL: Final = [("grpc.max_reconnect_backoff_ms", 500)]


async def connected() -> LittleHorseStub:
    """A client, once the server answers and knows tasks and flow."""
    address = f"{os.environ['LHC_API_HOST']}:{os.environ['LHC_API_PORT']}"
    stub = LittleHorseStub(grpc.aio.insecure_channel(address, options=CHANNEL))
    await until(lambda: asyncio.to_thread(register), grpc.RpcError)
    for task in (GATE, TASK):
        await until(partial(stub.GetTaskDef, TaskDefId(name=task)), grpc.RpcError)
    await until(lambda: stub.GetWfSpec(WfSpecId(name=FLOW)), grpc.RpcError)
    return stub


class LittleHorse(Driver):
    """Runs of the flow, by name. A result is an event, which the server hands to who waits."""

    def __init__(self, stub: LittleHorseStub) -> None:
        super().__init__()
        self._stub = stub

    async def _start(self, run: str) -> None:
        request = RunWfRequest(wf_spec_name=FLOW, id=run, variables={"run": to_variable_value(run)})

        async def call() -> None:
            try:
                await self._stub.RunWf(request, timeout=CALL_S_MAX)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
                    raise

        await until(call, grpc.RpcError)

    async def _result(self, run: str) -> int:
        request = AwaitWorkflowEventRequest(
            wf_run_id=WfRunId(id=run), event_def_ids=[WorkflowEventDefId(name=RESULT)]
        )

        async def call() -> int:
            event = await self._stub.AwaitWorkflowEvent(request, timeout=CALL_S_MAX)
            return int(event.content.int)

        return await until(call, grpc.RpcError)


async def main(answers: int) -> None:
    await requests.serve(LittleHorse(await connected()), answers)


if __name__ == "__main__":
    asyncio.run(main(requests.keep_answers_apart()))
