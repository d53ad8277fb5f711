"""A run of another cluster: its parts and its plan, checked before any is believed. Of one that has
ended it is the stub.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from dalsegno.streams.core.capturing import thawed
from dalsegno.streams.core.cold import may_rest, unpack_parts
from dalsegno.streams.core.plan import CompiledPlan
from dalsegno.streams.core.plan_pack import before_of
from dalsegno.streams.core.plan_store import PlanEntry, PlanStore
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import Run, Stub
from dalsegno.streams.core.state_codec import (
    KIND_RUN,
    KIND_STUB,
    StateCorrupt,
    header_key,
    read_prefix,
    run_of,
    unpack_run,
    unpack_stub,
)
from dalsegno.streams.core.warm import PackedRun

_PLAN: Final = b"p"
_OF_RUNS: Final = b"scjvo"


class Foreign(NamedTuple):
    """A run that can be taken in. `plans`: packed plans, each extending the one before."""

    packed: PackedRun
    plans: tuple[bytes, ...]


def read_foreign(run_id: str, parts: bytes) -> Foreign | Stub | str:
    """The run, what is left of it, or why it cannot be taken in."""
    try:
        return _read(run_id, dict(unpack_parts(parts)))
    except (StateCorrupt, msgspec.MsgspecError, ValueError, LookupError) as error:
        return f"its parts are no run: {error}"


def _read(run_id: str, parts: dict[bytes, bytes]) -> Foreign | Stub | str:
    header = parts.pop(header_key(run_id), b"")
    prefix = read_prefix(header)
    if prefix.kind == KIND_STUB and not parts:
        stub = unpack_stub(run_id, header, [])
        if isinstance(stub, Stub) and stub.head.state in FINAL_RUNS:
            return stub
    if prefix.kind != KIND_RUN:
        return "it is neither the state of a run nor the stub of one that has ended"
    plans = {key[1:]: value for key, value in parts.items() if key[:1] == _PLAN}
    own = [(key, value) for key, value in parts.items() if key[:1] != _PLAN]
    strange = [key for key, _ in own if key[:1] not in _OF_RUNS or run_of(key)[0] != run_id]
    if strange:
        return f"a part is not this run's: {strange[0][:80]!a}"
    chain: list[bytes] = []
    digest = prefix.plan
    while digest:
        packed = plans.pop(digest, None)
        if packed is None or sha256(packed).digest() != digest:
            return f"plan {digest.hex()} is missing, or is another one"
        chain.insert(0, packed)
        digest = before_of(packed)
    run = unpack_run(run_id, header, own, PlanEntry(CompiledPlan.unpack(*chain)))
    if plans or not may_rest(run):
        return "something of it is in flight, in a line, or not its own"
    return Foreign(PackedRun(header, own), tuple(chain))


def take_in(run_id: str, foreign: Foreign, runs: Runs, plans: PlanStore) -> Run:
    """Puts the run among ours, its plans too."""
    held = []
    for count in range(1, len(foreign.plans) + 1):
        entry = plans.interned(CompiledPlan.unpack(*foreign.plans[:count]))
        plans.hold(entry)
        held.append(entry.plan.digest)
    run = thawed(run_id, foreign.packed, plans)
    assert isinstance(run, Run), "it was read before"
    runs.adopt_absent(run, foreign.packed.parts)
    # The run names the last one now, and that one those before it.
    for digest in held:
        plans.drop(digest)
    return run
