"""Encode and decode per record, µs: our compiled codec beside Avro libraries.

    python -m benchmarks codec [--rounds 60]

"fastavro": parsed schema reused, schemaless, and msgspec between its dictionaries and our classes.
"cavro" (where installed): the same with its compiled schema. Neither is strict: docs/adr says what
they let through. Each figure is the best of many short rounds. Fails if a library decodes an event
or a heartbeat, or encodes an output, faster than we do: those are the engine's path. The other way
round is a worker's, and is not judged.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import msgspec
from rich.console import Console
from rich.table import Table

from dalsegno.schemas import codec
from dalsegno.schemas.events import RunEvent, RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.liveness import Heartbeat, Held
from dalsegno.schemas.outputs import (
    Handoff,
    Outcome,
    RunState,
    StepChange,
    StepState,
    Transition,
)
from dalsegno.schemas.plan import Plan, StepPlan
from dalsegno.schemas.registry import registry

AT_MS = 1_764_460_000_123
RUN = "7d9f4c1e-run-000042"
ROUND_S = 0.004

Way = tuple[Callable[[], object], Callable[[], object]]


def records() -> list[msgspec.Struct]:
    """What a run of five steps is made of, with fields as the SDK and the core fill them."""
    who = {"run_id": RUN, "source": "worker-1", "sent_at_ms": AT_MS, "reply_to": "worker-1"}
    steps = tuple(
        StepPlan(name=f"step_{i}", needs=(f"step_{i - 1}",), reads=("a",), writes=("b",),
                 queue="default", timeout_ms=20_000)
        for i in range(5)
    )  # fmt: skip
    held = tuple(
        Held(run_id=f"{RUN[:-2]}{i:02}", step="step_1", epoch=1, progress=i) for i in range(5)
    )
    change = StepChange(step="step_1", before=StepState.RUNNING, after=StepState.COMPLETED, epoch=1)
    return [
        RunStarted(**who, flow="risk", flow_version=1, plan=Plan(steps=steps), context=b"y" * 100),
        StepStarted(**who, step="step_1", epoch=1, worker="worker-1", incarnation=120),
        StepCompleted(**who, step="step_1", epoch=1, ops=b"x" * 60),
        Heartbeat(worker="worker-1", incarnation=120, partition=3, sent_at_ms=AT_MS, held=held),
        Transition(
            run_id=RUN, cause="StepCompleted", cause_offset=123_456, at_ms=AT_MS, step="step_1",
            outcome=Outcome.APPLIED, reason="", run_version_before=4, run_version_after=5, epoch=1,
            run_state_before=RunState.RUNNING, run_state_after=RunState.RUNNING, diff=b"z" * 50,
            changes=(change,), actor="worker-1",
        ),
        Handoff(
            run_id=RUN, flow="risk", flow_version=1, step="step_2", epoch=1, goal="",
            inputs=b"x" * 60, run_version=5, recovery_key=f"{RUN}/step_2", timeout_ms=20_000,
            dispatched_at_ms=AT_MS, start_by_ms=AT_MS + 30_000, heartbeat_ms=1_000, writes=("b",),
        ),
    ]  # fmt: skip


def ours(record: msgspec.Struct) -> Way:
    """Our codec, frame included."""
    value = codec.encode(record)
    return lambda: codec.encode(record), lambda: codec.decode(value)


def with_fastavro(record: msgspec.Struct) -> Way:
    """fastavro at its fastest, and msgspec from and to our classes; no frame."""
    schema = fastavro.parse_schema(json.loads(registry().newest(type(record).__name__).text))
    body = codec.encode(record)[codec.HEAD_BYTES :]

    def encode() -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, _plain(record))
        return out.getvalue()

    def decode() -> object:
        read = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
        return msgspec.convert(read, type(record))

    return encode, decode


def with_cavro(record: msgspec.Struct) -> Way:
    """cavro's compiled schema, and msgspec from and to our classes; no frame."""
    import cavro

    schema: Any = cavro.Schema(
        json.loads(registry().newest(type(record).__name__).text), record_decodes_to_dict=True
    )
    body = codec.encode(record)[codec.HEAD_BYTES :]
    return (
        lambda: schema.binary_encode(_plain(record)),
        lambda: msgspec.convert(schema.binary_decode(body), type(record)),
    )


def _plain(record: msgspec.Struct) -> object:
    return msgspec.to_builtins(record, builtin_types=(bytes,))


def best_us(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """The best mean of `rounds` short rounds of each call, in µs; rounds take turns."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            repeats = 20 if best[i] == float("inf") else max(20, int(ROUND_S / best[i]))
            started = time.perf_counter()
            for _ in range(repeats):
                call()
            best[i] = min(best[i], (time.perf_counter() - started) / repeats)
    return [each * 1e6 for each in best]


def ways() -> Iterator[tuple[str, Callable[[msgspec.Struct], Way]]]:
    """The contestants that are installed."""
    yield "ours", ours
    yield "fastavro", with_fastavro
    if importlib.util.find_spec("cavro"):
        yield "cavro", with_cavro


def main(argv: list[str]) -> int:
    """Prints the table. 1 if a library beats us on the engine's path."""
    parser = argparse.ArgumentParser(prog="benchmarks codec")
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args(argv).rounds
    names = [name for name, _ in ways()]
    headings = [f"{verb}\n{name}" for verb in ("encode", "decode") for name in names]
    table = Table("record", "bytes", *headings)
    slower = False
    for record in records():
        made = [way(record) for _, way in ways()]
        encode = best_us([each[0] for each in made], rounds)
        decode = best_us([each[1] for each in made], rounds)
        ours_of = decode if isinstance(record, RunEvent | Heartbeat) else encode
        slower |= ours_of[0] > min(ours_of)
        size = len(codec.encode(record))
        figures = (f"{each:.1f}" for each in (*encode, *decode))
        table.add_row(type(record).__name__, str(size), *figures)
    Console().print(table)
    return 1 if slower else 0
