"""Several things are closed although one of them fails."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)


class Closable(Protocol):
    """Something that has to be let go of."""

    async def close(self) -> None:
        """Let go."""


async def close_each(held: Iterable[Closable | None], partition: int) -> None:
    """Closes one after the other, each taken when it is its turn. What one of them raises keeps
    none of the others open.

    Raises an `ExceptionGroup` of it all at the end.
    """
    failures: list[Exception] = []
    for each in held:
        if each is None:
            continue
        try:
            await each.close()
        except Exception as error:
            log.exception("not closed cleanly", partition=partition, part=type(each).__name__)
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"partition {partition}: not closed cleanly", failures)
