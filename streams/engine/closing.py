"""Several things are closed although one of them fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)


class Closable(Protocol):
    """Something that has to be let go of."""

    async def close(self) -> None:
        """Let go."""


End = Callable[[], Awaitable[object]]


async def close_each(ends: Iterable[End], what: str, **where: object) -> None:
    """One end after the other, each taken when it is its turn. What one of them raises keeps none
    of the others from theirs. `where`: what the log says beside it.

    Raises an `ExceptionGroup` of it all at the end. A cancellation cuts short the end that is under
    way and no other, and is passed on last: what failed is then in the log alone.
    """
    failures: list[BaseException] = []
    cancelled: asyncio.CancelledError | None = None
    for end in ends:
        try:
            await end()
        except asyncio.CancelledError as error:
            cancelled = error
        except (Exception, BaseExceptionGroup) as error:  # a group of what was cancelled, too
            part = getattr(end, "__qualname__", repr(end))
            log.exception("not closed cleanly", part=part, **where)
            failures.append(error)
    if cancelled is not None:
        raise cancelled
    raise_failed(failures, what)


def raise_failed(ends: Iterable[BaseException | None], what: str) -> None:
    """Raises what went wrong in a group of its own, if anything did."""
    failures = [end for end in ends if end is not None]
    if failures:
        raise BaseExceptionGroup(f"{what}: not closed cleanly", failures)
