"""Blocking work on a thread that holds up nobody's end: neither a stop's nor the process's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dalsegno.streams.client.threads import Threads

T = TypeVar("T")


async def in_daemon_thread(work: Callable[[], T], name: str) -> T:
    """What `work` returns or raises. Given up, it goes on alone, and its result is dropped."""
    thread = Threads(1, name)
    try:
        return await thread.run(work)
    finally:
        thread.close()
