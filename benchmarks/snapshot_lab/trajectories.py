"""Real agents' trajectories, as contexts that change step by step."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import zstandard

FOLDER: Final = Path(__file__).parents[3] / "shared" / "data" / "agents"
NAMES: Final = ("bfcl_base", "openhands", "super", "sweagent", "tau_airline", "whowhen")
_pack = msgspec.msgpack.encode


def runs(name: str) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each run of a set: its first context and, by step, the operations on it, all packed.

    The sets spell a list's append `append`, and tau's keeps a database beside the context, which is
    left out.
    """
    with (FOLDER / f"{name}.jsonl.zst").open("rb") as file:
        text = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), encoding="utf-8")
        for line in text:
            run: dict[str, Any] = json.loads(line)
            steps = [
                _pack([_translated(op) for op in step["ops"] if op[1][:1] != ["db"]])
                for step in run["steps"]
            ]
            yield _pack(run["base"]), steps


def _translated(op: list[object]) -> list[object]:
    return ["app", *op[1:]] if op[0] == "append" else op
