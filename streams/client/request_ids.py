"""Ids of requests. A call that is repeated since its outcome was unknown is the same request.

Unless something else was asked for meanwhile: a pause after a resume is another pause, and a field
that is set again to what it was before another value is set anew.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

import msgspec

from dalsegno.schemas.events import InformationSupplied, RunCancelled, RunPaused, RunResumed
from dalsegno.streams.core.context_ops import parse_ops

Request: TypeAlias = RunPaused | RunResumed | RunCancelled | InformationSupplied
_MOST: Final = 10_000  # calls that have failed and that nobody has repeated


def new_run_id() -> str:
    """32 hexadecimal digits, the form of a W3C trace id."""
    return secrets.token_hex(16)


class _Call(NamedTuple):
    """What is kept of a request: facts may be large. `fields`: those that it sets."""

    run_id: str
    kind: str
    fields: frozenset[object]
    digest: bytes

    def crosses(self, other: _Call) -> bool:
        """Whether it says something else about what an earlier one was about."""
        if self.run_id != other.run_id or self == other:
            return False
        if self.fields or other.fields:
            return not self.fields.isdisjoint(other.fields)
        return self.kind != other.kind


class RequestIds:
    """Thread-safe. Remembers the ids of calls of which nobody knows whether they are in the log."""

    def __init__(self) -> None:
        self._open: OrderedDict[_Call, str] = OrderedDict()
        self._lock = threading.Lock()

    def named(self, request: Request) -> Request:
        """The request with an id: its own, that of the call which it repeats, or a new one."""
        name = "information_id" if isinstance(request, InformationSupplied) else "request_id"
        call = _call_of(request)
        with self._lock:
            for other in [each for each in self._open if call.crosses(each)]:
                del self._open[other]
            if getattr(request, name):
                return request
            given = self._open.setdefault(call, secrets.token_hex(16))
            if len(self._open) > _MOST:
                self._open.popitem(last=False)
        return msgspec.structs.replace(request, **{name: given})

    def sent(self, request: Request) -> None:
        """It is in the log: the next of the same content is another one."""
        with self._lock:
            self._open.pop(_call_of(request), None)


def _call_of(request: Request) -> _Call:
    fields: frozenset[object] = frozenset()
    if isinstance(request, InformationSupplied):
        fields = frozenset(part for each in parse_ops(request.ops) for part in each.path[:1])
    digest = sha256(msgspec.msgpack.encode(request)).digest()
    return _Call(request.run_id, type(request).__name__, fields, digest)
