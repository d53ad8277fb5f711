"""Asks a dependency whether it is well: HTTP, TCP, gRPC health, or a function of the user's.

A check answers within its time or has failed; it never raises. What passes opens the way for a
probe; it closes no breaker.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from dalsegno.schemas.control import Dependency, HealthCheck
from dalsegno.streams.engine.daemon import in_daemon_thread

_DETAIL_CHARS_MAX: Final = 200
_GRPC_METHOD: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = b"\x08\x01"


class CheckFailed(Exception):  # noqa: N818 - an answer, not a fault of ours
    """The dependency is not well, or cannot be asked; the text says which."""


async def check(
    dependency: Dependency, functions: frozenset[str], point: str = ""
) -> tuple[bool, str]:
    """Whether it is well, and what was found. `functions`: those that the settings allow. `point`:
    the fault point that asks, if the dependency has several; each asks once at a time.

    Only for a dependency that declares a check.
    """
    timeout_s = dependency.timeout_ms / 1_000
    try:
        async with asyncio.timeout(timeout_s):
            if dependency.check is HealthCheck.FUNCTION:
                await _function(dependency.target, functions, point or dependency.name)
            else:
                await _ASKS[dependency.check](dependency.target, timeout_s)
    except TimeoutError:
        return False, f"no answer within {dependency.timeout_ms} ms"
    except (CheckFailed, ClientError, OSError, ValueError) as error:
        return False, f"{type(error).__name__}: {error}"[:_DETAIL_CHARS_MAX]
    return True, "passed"


async def _http(target: str, timeout_s: float) -> None:
    timeout = ClientTimeout(total=timeout_s)
    async with ClientSession(timeout=timeout) as session, session.get(target) as answer:
        if answer.status >= 400:
            raise CheckFailed(f"status {answer.status}")


async def _tcp(target: str, _timeout_s: float) -> None:
    host, _, port = target.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.close()


async def _grpc(target: str, timeout_s: float) -> None:
    try:
        import grpc  # type: ignore[import-untyped]
    except ImportError as error:
        raise CheckFailed("grpcio is not installed") from error
    address, _, service = target.partition("/")
    name = service.encode()
    request = b"\x0a" + bytes([len(name)]) + name if name else b""
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(_GRPC_METHOD)
        try:
            answer = await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise CheckFailed(str(error.code())) from error
    if not answer.startswith(_SERVING):
        raise CheckFailed("not serving")


async def _function(target: str, functions: frozenset[str], point: str) -> None:
    if target not in functions:
        raise CheckFailed("not listed in DALSEGNO_HEALTH_FUNCTIONS")
    call = (point, target)
    if call in _running:
        raise CheckFailed("the function's last call has not returned yet")
    module, _, name = target.partition(":")
    try:
        function: Callable[[], object] = getattr(importlib.import_module(module), name)
        if inspect.iscoroutinefunction(function):
            well = await function()
        else:
            well = await in_daemon_thread(partial(_called, call, function), f"health-{target}")
    except Exception as error:
        # The user's own code: whatever it raises says that the dependency is not well.
        raise CheckFailed(repr(error)) from error
    if not well:
        raise CheckFailed("the function says no")


_running: Final[set[tuple[str, str]]] = set()
"""Plain functions that are being called, by who asks: one that hangs takes one thread of each, and
nobody else's. Two fault points may name the same function, and both are answered.
"""


def _called(call: tuple[str, str], function: Callable[[], object]) -> object:
    _running.add(call)
    try:
        return function()
    finally:
        _running.discard(call)


_ASKS: Final[dict[HealthCheck, Callable[[str, float], Awaitable[None]]]] = {
    HealthCheck.HTTP: _http,
    HealthCheck.TCP: _tcp,
    HealthCheck.GRPC: _grpc,
}
