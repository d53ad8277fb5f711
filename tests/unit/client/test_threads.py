"""Plain functions in threads: their outcome comes back, and none of them keeps the process."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

import pytest

from dalsegno.streams.client.threads import Threads


async def test_results_errors_and_context_variables_cross() -> None:
    threads = Threads(2, "t")
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(5)
    assert await threads.run(variable.get) == 5
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(lambda: next(iter([])))
    with pytest.raises(RuntimeError, match="SystemExit"):
        await threads.run(sys.exit)
    threads.close()


async def test_as_many_run_at_once_as_there_may_be_and_the_rest_waits() -> None:
    threads = Threads(3, "t")
    together = threading.Barrier(3)
    names = await asyncio.gather(
        *(
            threads.run(lambda: (together.wait(10), threading.current_thread().name))
            for _ in range(9)
        )
    )
    assert len({name for _, name in names}) == 3
    threads.close()


def test_a_function_that_never_returns_does_not_keep_the_process() -> None:
    program = (
        "import asyncio, threading\n"
        "from dalsegno.streams.client.threads import Threads\n"
        "async def main():\n"
        "    work = asyncio.ensure_future(Threads(1, 't').run(threading.Event().wait))\n"
        "    await asyncio.wait([work], timeout=0.1)\n"
        "    work.cancel()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=30, check=True)


class Late:
    """A queue at which thread `t-1` is told late that there is nothing, and `t-2` looks late."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.put = self._queue.put
        self.finds_nothing, self.is_told = threading.Event(), threading.Event()
        self.looks, self.waits = threading.Event(), threading.Event()

    def get_nowait(self) -> Callable[[], None] | None:
        if threading.current_thread().name == "t-2":
            self.looks.wait(20)
        try:
            return self._queue.get_nowait()
        except queue.Empty:
            self._tell()
            raise

    def get(self) -> Callable[[], None] | None:
        if threading.current_thread().name == "t-2":
            self.waits.set()
        if self._queue.empty():
            self._tell()
        return self._queue.get()

    def _tell(self) -> None:
        if threading.current_thread().name == "t-1":
            self.finds_nothing.set()
            self.is_told.wait(20)


async def test_work_never_waits_for_a_thread_that_only_seemed_idle() -> None:
    """Bodies wait for each other: with a thread more to be made, two of them waited for ever."""
    threads, late, together = Threads(3, "t"), Late(), threading.Barrier(3)
    threads._work = late  # type: ignore[assignment]
    began = threading.Event()

    def first() -> None:
        began.set()
        together.wait(20)

    await threads.run(lambda: None)
    await asyncio.to_thread(late.finds_nothing.wait, 20)
    works = [asyncio.create_task(threads.run(first))]
    await asyncio.sleep(0)
    late.is_told.set()
    await asyncio.to_thread(began.wait, 20)
    late.looks.set()
    if threads._count == 2:
        await asyncio.to_thread(late.waits.wait, 20)
    works += [asyncio.create_task(threads.run(partial(together.wait, 20))) for _ in range(2)]
    await asyncio.gather(*works)
    threads.close()
