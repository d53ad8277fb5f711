"""Ids of requests. A call that is repeated since its outcome was unknown is the same request."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import Final, TypeAlias

import msgspec

from dalsegno.schemas.events import InformationSupplied, RunCancelled, RunPaused, RunResumed

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
        if getattr(request, name):
            return request
        with self._lock:
            given = self._open.setdefault(request, secrets.token_hex(16))
            if len(self._open) > _MOST:
                self._open.popitem(last=False)
        return msgspec.structs.replace(request, **{name: given})

    def sent(self, request: Request) -> None:
        """It is in the log: the next of the same content is another one."""
        with self._lock:
            self._open.pop(request, None)
