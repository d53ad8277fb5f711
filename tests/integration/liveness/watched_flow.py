"""`python -m tests.integration.liveness.watched_flow NAME`: a worker whose step blocks."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dalsegno.client import BlockingContext, Flow, Worker

flow = Flow("watched", version=1, ttl="30m")


@flow.step(reads=["gate"], writes=["epoch"], timeout="10m")
def wait_at_gate(ctx: BlockingContext) -> dict[str, object]:
    """Blocks its thread, as a busy step does, until the gate's file exists."""
    gate = Path(str(ctx["gate"]))
    gate.with_suffix(f".started-{ctx.epoch}").touch()
    while not gate.exists():
        time.sleep(0.05)
    return {"epoch": ctx.epoch}


def main() -> None:
    Worker([flow], name=sys.argv[1], concurrency=10).run()


if __name__ == "__main__":
    main()
