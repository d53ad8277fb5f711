"""Calls of the three services."""

from __future__ import annotations

import os
from collections.abc import Mapping

from examples.calling import Services

services = Services(lambda name: os.environ[f"DOCUMENTS_{name.upper()}_URL"], timeout_s=10)


async def page(name: str, number: int, run: str, epoch: int) -> str:
    """One page of a document."""
    query = {"name": name, "number": str(number), "run": run, "epoch": str(epoch)}
    return (await services.get("store", "page", **query)).decode()


async def summarise(body: Mapping[str, object], *, key: str, epoch: int) -> dict[str, object]:
    """Have the model choose what matters."""
    return await services.post("model", "summarise", body, key=key, epoch=epoch)


async def file(body: Mapping[str, object], *, key: str, epoch: int) -> dict[str, object]:
    """File a report. Raises `Permanent` for one that the archive does not take."""
    return await services.post("archive", "file", body, key=key, epoch=epoch)
