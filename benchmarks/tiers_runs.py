"""Runs whose contexts begin with 400 random bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
from benchmarks.engine_lab.load import run_events

from dalsegno.schemas.events import RunEvent, RunStarted


def random_run(name: str, rng: random.Random) -> Iterator[RunEvent]:
    """A run whose context does not compress."""
    for event in run_events(name):
        if isinstance(event, RunStarted):
            first = msgspec.msgpack.encode({"input": rng.randbytes(400)})
            yield msgspec.structs.replace(event, context=first)
        else:
            yield event
