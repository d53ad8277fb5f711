"""A worker to kill. Arguments: bootstrap servers, prefix, ledger, crash after, lease in ms.

Its step has three effects, each a line in the ledger; after effect number `crash after` of an
attempt of epoch 1 the process kills itself, before the confirmation of the next. `held` waits for
ever, `gated` until there is a file beside the ledger. The last wait of a stop has a line there too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from dalsegno.client import Context, Flow, Worker, WorkerConfig

flow = Flow("f")


def write(line: str) -> None:
    with Path(sys.argv[3]).open("a") as ledger:
        ledger.write(line + "\n")


async def act(name: str, key: str, epoch: int) -> str:
    write(f"{name} {key} {epoch}")
    return f"done {name}"


@flow.step(reads=[], writes=["x"])
async def order(ctx: Context) -> dict[str, object]:
    results = []
    for number, name in enumerate(("reserve", "charge", "mail"), start=1):
        results.append(await ctx.effect(name, act, name))
        if ctx.epoch == 1 and number == int(sys.argv[4]):
            os.kill(os.getpid(), signal.SIGKILL)
    return {"x": results}


@flow.step(reads=[], writes=["x"])
async def held(ctx: Context) -> dict[str, object]:
    write(f"begun {ctx.run_id} {ctx.epoch}")
    for _ in range(600):
        await asyncio.sleep(0.1)
        ctx.progress()
    return {"x": 1}


@flow.step(reads=[], writes=["x"])
async def gated(ctx: Context) -> dict[str, object]:
    write(f"begun {ctx.run_id} {ctx.epoch}")
    gate = Path(sys.argv[3]).with_name("gate")
    while not gate.exists():  # noqa: ASYNC110 - another process makes it
        await asyncio.sleep(0.02)
    write(f"done {ctx.run_id} {ctx.epoch}")
    return {"x": 1}


class Telling(Worker):
    """Writes down when nothing but reports is left to be waited for."""

    def _flush_s(self) -> float:
        write("last wait")
        return super()._flush_s()


if __name__ == "__main__":
    lease_ms = int(sys.argv[5])
    settings = WorkerConfig(
        lease_ms=lease_ms,
        session_timeout_ms=max(10_000, lease_ms),
        heartbeat_interval_ms=200,
        stop_timeout_ms=2_000,
    )
    name = f"{sys.argv[2]}-w"
    Telling(
        [flow], bootstrap_servers=sys.argv[1], prefix=sys.argv[2], name=name, settings=settings
    ).run()
