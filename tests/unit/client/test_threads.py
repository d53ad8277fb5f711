"""Plain functions in threads: their outcome comes back, and none of them keeps the process."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading

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
