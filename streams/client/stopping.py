"""What users have opened for their bodies is closed when their worker stops."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable

from dalsegno.streams.client.flow import Flow, StopHook

_LOG = logging.getLogger("dalsegno.worker")


def stop_hooks(flows: Iterable[Flow]) -> tuple[StopHook, ...]:
    """Those of all flows, each once."""
    return tuple(dict.fromkeys(hook for flow in flows for hook in flow.stop_hooks))


async def run_stop_hooks(hooks: Iterable[StopHook], timeout_s: float) -> None:
    """Calls each in turn, on this loop. What one raises, or takes too long for, is logged."""
    for hook in hooks:
        try:
            ending = hook()
            if inspect.isawaitable(ending):
                async with asyncio.timeout(timeout_s):
                    await ending
        except Exception:  # noqa: BLE001 - the user's own code: the others have their turn
            _LOG.exception("stop hook %r failed", hook)
