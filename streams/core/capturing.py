"""Runs and stubs between what they are in memory and their parts."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.streams.core import tags
from dalsegno.streams.core.cold import Cold
from dalsegno.streams.core.plan_store import PlanStore
from dalsegno.streams.core.runstate import Run, Stub
from dalsegno.streams.core.state_codec import (
    KIND_RUN,
    all_parts,
    header_key,
    pack_cold,
    pack_run,
    pack_stub,
    pack_waiting,
    part_key,
    read_prefix,
    run_part,
    unpack_run,
    unpack_stub,
)
from dalsegno.streams.core.warm import PackedRun

Held = Run | Stub | Cold


def capture_held(held: Held, marks: set[int], out: dict[bytes, bytes | None]) -> None:
    """Adds the header and the parts that `marks` stand for."""
    held.kept = True
    if not isinstance(held, Run):
        out[header_key(held.id)] = _packed(held)
        if tags.ALL_WAITING in marks:
            out[part_key(held.id, tags.ALL_WAITING)] = _waiting_part(held)
        return
    out[header_key(held.id)] = pack_run(held)
    for tag in sorted(marks):
        if tag == tags.ALL_CONTEXT:
            name = b"c" + held.id.encode() + b"\0"
            for tail, value in held.context.drain_dirty():
                out[name + tail] = value
        else:
            key, part = run_part(held, tag)
            out[key] = part


def parts_of(run_id: str, held: Held | PackedRun) -> Iterable[tuple[bytes, bytes]]:
    """Every part of it."""
    if isinstance(held, PackedRun):
        return [(header_key(run_id), held.header), *held.parts]
    if isinstance(held, Run):
        return [(header_key(run_id), pack_run(held)), *all_parts(held)]
    header = (header_key(run_id), _packed(held))
    waiting = _waiting_part(held)
    return [header] if waiting is None else [header, (part_key(run_id, tags.ALL_WAITING), waiting)]


def thawed(run_id: str, packed: PackedRun, plans: PlanStore) -> Held:
    """What the bytes stand for. Raises `StateCorrupt`."""
    prefix = read_prefix(packed.header)
    if prefix.kind != KIND_RUN:
        return unpack_stub(run_id, packed.header, packed.parts, prefix.kind)
    run = unpack_run(run_id, packed.header, packed.parts, plans.get(prefix.plan))
    run.log_due, run.live_due = prefix.log_due, prefix.live_due
    return run


def _packed(held: Stub | Cold) -> bytes:
    return pack_stub(held) if isinstance(held, Stub) else pack_cold(held)


def _waiting_part(stub: Stub | Cold) -> bytes | None:
    return pack_waiting(stub.waiting) if stub.waiting else None
