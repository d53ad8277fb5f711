"""Calls of the three services."""

from __future__ import annotations

import json
import os

from examples.calling import Services

services = Services(lambda name: os.environ[f"RECONCILIATION_{name.upper()}_URL"], timeout_s=3)


async def lines(service: str, what: str, account: str) -> list[list[object]]:
    """A statement or the entries of the ledger."""
    found: list[list[object]] = json.loads(await services.get(service, what, account=account))
    return found


async def book(
    account: str, reference: str, cents: int, *, key: str, epoch: int
) -> dict[str, object]:
    """Book a correction once under `key`."""
    body = {"account": account, "reference": reference, "cents": cents}
    return await services.post("booking", "do", body, key=key, epoch=epoch)


async def unbook(account: str, of: str, *, key: str, epoch: int) -> dict[str, object]:
    """Take back, once, what was booked under `of`; what never was is refused from now on."""
    body = {"what": account, "of": of}
    return await services.post("booking", "undo", body, key=key, epoch=epoch)


async def close(account: str, cents: int, *, key: str, epoch: int) -> dict[str, object]:
    """Close an account's day with its balance."""
    body = {"account": account, "cents": cents}
    return await services.post("ledger", "close", body, key=key, epoch=epoch)
