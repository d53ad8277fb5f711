"""A value on its whole way: written by a body, in the log, in the state, restored, handed over, in
a snapshot, read by the next body. What comes out has the bytes that went in.
"""

from __future__ import annotations

import json
import math
import string
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.folding import Folding
from tests.unit.client.fakes import attempt
from tests.unit.core.log import plan_of, step
from tests.unit.schemas.any_values import any_value

from dalsegno.client import Context, ValueRefusedError
from dalsegno.ops.cli.render import plain
from dalsegno.schemas import codec, values
from dalsegno.schemas.events import RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.outputs import Handoff
from dalsegno.storage.snapshots.chain import About, ChainWriter, restore
from dalsegno.streams.client.writing import set_operations
from dalsegno.streams.core.actions import Dispatch
from dalsegno.streams.engine.jsonable import jsonable

VALUES = any_value(12)
PLAN = plan_of(
    step("s0", writes=("f",)),
    step("s1", reads=("f", "given"), writes=("g",), needs=("s0",)),
)


def on_the_wire(event: Any) -> Any:
    return codec.decode(codec.encode(event))


def handed_over(given_value: Any, written: Any) -> tuple[Folding, Handoff]:
    """The handoff that reads both, after a crash of the owner."""
    folding = Folding()
    context = values.pack({"given": given_value})
    start = RunStarted(run_id="r", flow="f", flow_version=1, plan=PLAN, context=context)
    folding.append(on_the_wire(start))
    folding.append(on_the_wire(StepStarted(run_id="r", step="s0", epoch=1, worker="w")))
    folding.capture()
    done = StepCompleted(run_id="r", step="s0", epoch=1, ops=set_operations({"f": written}, None))
    outputs = folding.append(on_the_wire(done))
    folding.capture()
    folding.crash()
    (handoff,) = (o.action.handoff for o in outputs if isinstance(o.action, Dispatch))
    return folding, on_the_wire(handoff)


@settings(deadline=None)
@given(VALUES, VALUES)
def test_what_a_body_writes_the_next_one_reads(given_value: Any, written: Any) -> None:
    folding, handoff = handed_over(given_value, written)
    held = attempt(inputs=handoff.inputs)
    fields = dict(Context(held, None))  # type: ignore[arg-type]
    assert values.pack(fields["given"]) == values.pack(given_value)
    assert values.pack(fields["f"]) == values.pack(written)

    view = folding.partition.run("r")
    assert view is not None
    assert values.unpack_map(view.context).keys() == {"given", "f"}
    about = About("s0", view.run_version, b"p" * 32, "", 1, 0)
    size = len(view.context) - 1  # a context's size is that of its fields, without the map's head
    link = ChainWriter("r").add(about, size, lambda: view.context, None)
    assert restore("r", [link]).context == view.context
    # Whoever asks over HTTP, or by the command line, gets JSON that every parser takes.
    strict: Any = {"parse_constant": pytest.fail}
    json.loads(json.dumps(jsonable(values.unpack_map(view.context))), **strict)
    json.loads(json.dumps(plain(values.unpack_map(view.context))), **strict)


ODD = st.sampled_from(
    [
        (1, 2), {1, 2}, frozenset({1}), Decimal("0.1"), 2**63, -(2**63) - 1, 2**64, 1j, object(),
        datetime(2026, 1, 1), "\ud800", {1: "a"}, {None: 1}, {b"k": 1}, bytearray(b"x"),  # noqa: DTZ001
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))), range(3), type, math.floor,
    ]
)  # fmt: skip
KEYS = st.text(string.ascii_lowercase, min_size=1, max_size=4)


@settings(deadline=None)
@given(ODD, st.lists(KEYS | st.integers(0, 3), max_size=5), VALUES)
def test_anything_else_is_refused_where_it_stands(
    odd: object, way: list[str | int], beside: Any
) -> None:
    value, path = odd, ""
    for part in reversed(way):
        if isinstance(part, str):
            value = {"before": beside, part: value} if part != "before" else {part: value}
        else:
            value = [*[beside] * part, value]
    for part in way:
        path += f".{part}" if isinstance(part, str) else f"[{part}]"
    with pytest.raises(ValueRefusedError) as refusal:
        set_operations({"field": value}, None)
    assert refusal.value.path == f"field{path}"
