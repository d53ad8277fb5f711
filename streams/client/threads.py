"""Threads for plain functions: daemons, so that one that never returns does not keep the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

R = TypeVar("R")
_Work = Callable[[], None]


class Threads:
    """Up to `most` threads, made as they are needed and used again. Belongs to one event loop."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._spare = 0  # threads that run nothing, less what waits for one

    async def run(self, function: Callable[[], R]) -> R:
        """Run `function` in a thread, with the caller's context variables. Raises what it
        raises.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        context = contextvars.copy_context()
        self._work.put(partial(_run, loop, future, partial(context.run, function)))
        with self._lock:
            self._spare -= 1
            grows = self._spare < 0 and self._count < self._most
            if grows:
                self._count += 1
                self._spare += 1
        if grows:
            name = f"{self._name}-{self._count}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        return await future

    def close(self) -> None:
        """Idle threads end now, busy ones after what they run."""
        for _ in range(self._count):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            with self._lock:
                self._spare += 1


async def to_its_end(function: Callable[[], R]) -> R:
    """Run `function` in a thread. A cancellation is passed on when it has returned and not before:
    a thread cannot be stopped, and what it works on may be closed next.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()
        raise


def _run(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[R], function: Callable[[], R]
) -> None:
    settle: Callable[[], None]
    try:
        result = function()
    except (StopIteration, SystemExit) as error:  # no future can hold the one, no loop the other
        settle = partial(_fail, future, RuntimeError(f"the function raised {error!r}"))
    # A thread's boundary: whatever the function raises goes to who waits for it.
    except BaseException as error:  # noqa: BLE001
        settle = partial(_fail, future, error)
    else:
        settle = partial(_succeed, future, result)
    with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits any more
        loop.call_soon_threadsafe(settle)


def _succeed(future: asyncio.Future[R], result: R) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[R], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
