"""Calls of the shop's services."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from dalsegno.client import NOT_DONE
from examples.calling import Services

services = Services(lambda name: os.environ[f"ORDER_{name.upper()}_URL"], timeout_s=5)


async def do(
    service: str, order: Mapping[str, object], *, key: str, epoch: int
) -> dict[str, object]:
    """Ask a service to act once under `key`."""
    body = {"order": order["name"], "units": order["units"], "amount": order["price"]}
    return await services.post(service, "do", body, key=key, epoch=epoch)


async def undo(service: str, name: str, of: str, *, key: str, epoch: int) -> dict[str, object]:
    """Ask a service to take back, once, what it did under `of`."""
    return await services.post(service, "undo", {"order": name, "of": of}, key=key, epoch=epoch)


async def was_done(service: str, name: str, of: str) -> object:
    """Ask a service whether it has done what it was asked under `of`."""
    del name
    return True if json.loads(await services.get(service, "done", key=of))["done"] else NOT_DONE
