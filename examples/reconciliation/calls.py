"""Calls of the three services, and what their answers mean for a step."""

from __future__ import annotations

import os
from collections.abc import Mapping

import aiohttp

from dalsegno.client import DependencyDown, Transient

_sessions: dict[int, aiohttp.ClientSession] = {}


def _url(service: str, path: str) -> str:
    return os.environ[f"RECONCILIATION_{service.upper()}_URL"] + path


def _session() -> aiohttp.ClientSession:
    """One session per process; made inside the worker's event loop, on first use."""
    session = _sessions.get(os.getpid())
    if session is None:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3))
        _sessions[os.getpid()] = session
    return session


async def lines(service: str, what: str, account: str) -> list[list[object]]:
    """A statement or the entries of the ledger."""
    try:
        async with _session().get(_url(service, what), params={"account": account}) as response:
            found: list[list[object]] = await response.json()
            return found
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DependencyDown(service, message=f"no answer: {error!r}") from error


async def book(
    account: str, reference: str, cents: int, *, key: str, epoch: int
) -> dict[str, object]:
    """Book a correction once under `key`."""
    body = {"account": account, "reference": reference, "cents": cents}
    return await _post("booking", "do", body, key, epoch)


async def unbook(account: str, of: str, *, key: str, epoch: int) -> dict[str, object]:
    """Take back, once, what was booked under `of`; what never was is refused from now on."""
    return await _post("booking", "undo", {"what": account, "of": of}, key, epoch)


async def close(account: str, cents: int, *, key: str, epoch: int) -> dict[str, object]:
    """Close an account's day with its balance."""
    return await _post("ledger", "close", {"account": account, "cents": cents}, key, epoch)


async def _post(
    service: str, path: str, body: Mapping[str, object], key: str, epoch: int
) -> dict[str, object]:
    headers = {"Idempotency-Key": key, "Epoch": str(epoch)}
    try:
        async with _session().post(_url(service, path), json=body, headers=headers) as response:
            answer: dict[str, object] = await response.json()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DependencyDown(service, message=f"no answer: {error!r}") from error
    if response.status != 200:
        raise Transient(f"{service} answered {response.status}: {answer.get('error')}")
    return answer
