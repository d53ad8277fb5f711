"""The crash workload on LangGraph, each checkpoint durable before the next step begins.

LangGraph recovers nothing by itself: the worker lists the threads and goes on with each. A thread
whose first checkpoint is not there yet was never accepted. The argument is a file for SQLite or the
address of a PostgreSQL.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypedDict

from benchmarks.crash_lab import body, requests
from langgraph.graph import END, START, StateGraph

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph.state import CompiledStateGraph

_CONNECTIONS = 20


class State(TypedDict, total=False):
    """Of a run."""

    run: str
    total: int


def _node(step: int) -> Callable[[State], Awaitable[State]]:
    async def do(state: State) -> State:
        if step == 0:
            await body.gate(state["run"])
        return {"total": state.get("total", 0) + await body.step_body(state["run"], step)}

    return do


def graph(saver: BaseCheckpointSaver[Any]) -> CompiledStateGraph[State]:
    """Five steps in a row."""
    builder = StateGraph(State)
    names = [f"s{step}" for step in range(body.STEPS)]
    for step, name in enumerate(names):
        builder.add_node(name, _node(step))
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """The saver of an address."""
    if not address.startswith("postgresql://"):
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with AsyncSqliteSaver.from_conn_string(address) as saver:
            await saver.setup()
            yield saver
        return
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(address, max_size=_CONNECTIONS, kwargs=settings) as pool:
        on_server = AsyncPostgresSaver(pool)
        await on_server.setup()
        yield on_server


async def threads(saver: BaseCheckpointSaver[Any]) -> list[str]:
    """All that have a checkpoint."""
    found = {each.config["configurable"]["thread_id"]: None async for each in saver.alist(None)}
    return list(found)


class Engine:
    """Threads of LangGraph, by the run's name."""

    def __init__(self, runs: CompiledStateGraph[State], tasks: asyncio.TaskGroup) -> None:
        self._graph, self._tasks = runs, tasks
        self._results: dict[str, asyncio.Task[int]] = {}
        self._slots = asyncio.Semaphore(requests.IN_FLIGHT)

    async def submit(self, runs: Sequence[str]) -> None:
        for run in runs:
            self.start(run, {"run": run})
        await requests.until_held(min(len(runs), requests.IN_FLIGHT))

    def start(self, run: str, state: State | None) -> None:
        """With a state from the beginning, with none where its last checkpoint is."""
        self._results[run] = self._tasks.create_task(self._invoke(run, state))

    async def _invoke(self, run: str, state: State | None) -> int:
        config: RunnableConfig = {"configurable": {"thread_id": run}}
        async with self._slots:
            end = await self._graph.ainvoke(state, config, durability="sync")
        return int(end["total"])

    async def result(self, run: str) -> int:
        return await self._results[run]


async def main(address: str, answers: int) -> None:
    async with opened(address) as saver, asyncio.TaskGroup() as tasks:
        engine = Engine(graph(saver), tasks)
        for run in await threads(saver):
            engine.start(run, None)
        await requests.serve(engine, answers)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], requests.keep_answers_apart()))
