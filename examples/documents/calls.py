"""Calls of the three services, and what their answers mean for a step."""

from __future__ import annotations

import os
from collections.abc import Mapping

import aiohttp

from dalsegno.client import DependencyDown, Permanent, Transient

_sessions: dict[int, aiohttp.ClientSession] = {}


def _url(service: str, path: str) -> str:
    return os.environ[f"DOCUMENTS_{service.upper()}_URL"] + path


def _session() -> aiohttp.ClientSession:
    """One session per process; made inside the worker's event loop, on first use."""
    session = _sessions.get(os.getpid())
    if session is None:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        _sessions[os.getpid()] = session
    return session


async def page(name: str, number: int, run: str, epoch: int) -> str:
    """One page of a document. A read changes nothing, so it is no effect."""
    query = {"name": name, "number": str(number), "run": run, "epoch": str(epoch)}
    try:
        async with _session().get(_url("store", "page"), params=query) as response:
            response.raise_for_status()
            return await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DependencyDown("store", message=f"no answer: {error!r}") from error


async def summarise(body: Mapping[str, object], *, key: str, epoch: int) -> dict[str, object]:
    """Have the model choose what matters."""
    return await _post("model", "summarise", body, key, epoch)


async def file(body: Mapping[str, object], *, key: str, epoch: int) -> dict[str, object]:
    """File a report. Raises `Permanent` for one that the archive does not take."""
    return await _post("archive", "file", body, key, epoch)


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
