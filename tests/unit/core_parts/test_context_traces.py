"""Real agent trajectories, replayed through the operations step by step."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zstandard
from tests.unit.core_parts.documents import MisfitError, model, packed_fields

from dalsegno.schemas.control import Policy
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_delta import ops_between

AGENTS = Path(__file__).parents[4] / "shared" / "data" / "agents"
NAMES = ("bfcl_base", "openhands", "super", "sweagent", "tau_airline", "whowhen")
POLICY = Policy(context_bytes_max=64 << 20, inline_bytes_max=32 << 20)

pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not AGENTS.is_dir(), reason=f"no real trajectories at {AGENTS}"),
]
pack = msgspec.msgpack.encode


def runs(name: str) -> Iterator[dict]:
    data = zstandard.ZstdDecompressor().stream_reader((AGENTS / f"{name}.jsonl.zst").read_bytes())
    for line in data.read().splitlines():
        yield json.loads(line)


def translated(ops: list) -> list:
    """The data sets spell it `append`; changes of the separate database stay out."""
    return [["app" if op[0] == "append" else op[0], *op[1:]] for op in ops if op[1][:1] != ["db"]]


@pytest.mark.parametrize("name", NAMES)
def test_every_step_leaves_what_the_model_says(name):
    steps = written = grown = 0
    for run in runs(name):
        plain = run["base"]
        context = Context.create(pack(plain), POLICY)
        context.drain_dirty()
        for step in run["steps"]:
            ops = translated(step["ops"])
            change = context.apply(pack(ops), POLICY)
            change.diff(frozenset())
            change.adopt()
            plain = _in_place(plain, ops)
            steps += 1
            written += sum(len(part or b"") for _, part in context.drain_dirty())
            grown += len(pack(ops))
        assert context.pack() == packed_fields(plain)
        assert Context.load(context.parts()).pack() == packed_fields(plain)
    assert steps > 30
    # What goes to the changelog is in proportion to the operations, not to the context.
    assert written < 5 * grown + 600 * steps


@pytest.mark.parametrize("name", NAMES)
def test_operations_found_by_comparison_lead_to_the_same_bytes(name):
    for number, run in enumerate(runs(name)):
        if number % 8:
            continue
        plain = run["base"]
        context = Context.create(pack(plain), POLICY)
        for step in run["steps"][:12]:
            before = packed_fields(plain)
            plain = _in_place(json.loads(json.dumps(plain)), translated(step["ops"]))
            context.apply(ops_between(before, pack(plain)), POLICY).adopt()
            assert context.pack() == packed_fields(plain)


def _in_place(plain: dict, ops: list) -> dict:
    """The model without its copies, for contexts of megabytes."""
    for op in ops:
        if not op[1] or op[0] not in ("app", "set"):
            plain = model(plain, [op])
            continue
        at = plain
        for key in op[1][:-1]:
            at = at[key]
        if op[0] == "set":
            at[op[1][-1]] = op[2]
        elif isinstance(at[op[1][-1]], list):
            at[op[1][-1]].extend(op[2])
        else:
            raise MisfitError
    return plain
