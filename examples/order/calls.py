"""Calls of the shop's services, and what their answers mean for a step."""

from __future__ import annotations

import os
from collections.abc import Mapping

import aiohttp

from dalsegno.client import NOT_DONE, DependencyDown, Permanent, Transient

_sessions: dict[int, aiohttp.ClientSession] = {}


def _url(service: str, path: str) -> str:
    return os.environ[f"ORDER_{service.upper()}_URL"] + path


def _session() -> aiohttp.ClientSession:
    """One session per process; made inside the event loop, on first use."""
    session = _sessions.get(os.getpid())
    if session is None or session.closed:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))
        _sessions[os.getpid()] = session
    return session


async def close() -> None:
    """Closes this process's session, if there is one."""
    session = _sessions.pop(os.getpid(), None)
    if session is not None:
        await session.close()


async def do(
    service: str, order: Mapping[str, object], *, key: str, epoch: int
) -> dict[str, object]:
    """Ask a service to act once under `key`."""
    body = {"order": order["name"], "units": order["units"], "amount": order["price"]}
    return await _post(service, "do", body, key, epoch)


async def undo(service: str, name: str, of: str, *, key: str, epoch: int) -> dict[str, object]:
    """Ask a service to take back, once, what it did under `of`."""
    return await _post(service, "undo", {"order": name, "of": of}, key, epoch)


async def was_done(service: str, name: str, of: str) -> object:
    """Ask a service whether it has done what it was asked under `of`."""
    del name
    try:
        async with _session().get(_url(service, "done"), params={"key": of}) as response:
            return True if (await response.json())["done"] else NOT_DONE
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DependencyDown(service, message=f"cannot be reached: {error!r}") from error


async def _post(
    service: str, path: str, body: Mapping[str, object], key: str, epoch: int
) -> dict[str, object]:
    headers = {"Idempotency-Key": key, "Epoch": str(epoch)}
    try:
        async with _session().post(_url(service, path), json=body, headers=headers) as response:
            answer: dict[str, object] = await response.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DependencyDown(service, message=f"no answer: {error!r}") from error
    if response.status == 200:
        return answer
    said = f"{service} answered {response.status}: {answer.get('error')}"
    if response.status == 422:
        raise Permanent(said, error_class="refused")
    raise Transient(said)
