"""Ids of requests. A call that is repeated since its outcome was unknown is the same request.

Unless something else was asked for meanwhile: a pause after a resume is another pause, and a field
that is set again to what it was before another value is set anew.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import Final, TypeAlias

import msgspec

from dalsegno.schemas.events import InformationSupplied, RunCancelled, RunPaused, RunResumed
from dalsegno.streams.core.context_ops import parse_ops

Request: TypeAlias = RunPaused | RunResumed | RunCancelled | InformationSupplied
_MOST: Final = 10_000  # calls that have failed and that nobody has repeated


class RequestIds:
    """Thread-safe. Remembers the ids of calls of which nobody knows whether they are in the log."""

    def __init__(self) -> None:
        self._open: OrderedDict[Request, str] = OrderedDict()
        self._lock = threading.Lock()

    def named(self, request: Request) -> Request:
        """The request with an id: its own, that of the call which it repeats, or a new one."""
        name = "information_id" if isinstance(request, InformationSupplied) else "request_id"
        with self._lock:
            for other in [each for each in self._open if _crosses(request, each)]:
                del self._open[other]
            if getattr(request, name):
                return request
            given = self._open.setdefault(request, secrets.token_hex(16))
            if len(self._open) > _MOST:
                self._open.popitem(last=False)
        return msgspec.structs.replace(request, **{name: given})

    def sent(self, request: Request) -> None:
        """It is in the log: the next of the same content is another one."""
        with self._lock:
            self._open.pop(request, None)


def _crosses(request: Request, other: Request) -> bool:
    """Whether a request says something else about what an earlier one was about."""
    if request.run_id != other.run_id or request == other:
        return False
    if isinstance(request, InformationSupplied) and isinstance(other, InformationSupplied):
        return not _fields_of(request).isdisjoint(_fields_of(other))
    if isinstance(request, InformationSupplied) or isinstance(other, InformationSupplied):
        return False
    return type(request) is not type(other)


def _fields_of(supplied: InformationSupplied) -> set[object]:
    return {part for each in parse_ops(supplied.ops) for part in each.path[:1]}
