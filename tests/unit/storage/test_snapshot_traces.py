"""Real agents' trajectories as snapshot chains."""

from __future__ import annotations

import pytest
from benchmarks.snapshot_lab import trajectories
from benchmarks.snapshots import CEILINGS, POLICY, TOLERANCE, measure

from dalsegno.storage.snapshots.chain import About, ChainWriter, prune, restore
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_delta import ops_between

pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(
        not trajectories.FOLDER.is_dir(), reason=f"no real trajectories at {trajectories.FOLDER}"
    ),
]
RUNS = 6


@pytest.mark.parametrize("name", trajectories.NAMES)
def test_every_version_comes_back_byte_for_byte(name: str) -> None:
    versions = 0
    for number, (base, steps) in enumerate(trajectories.runs(name)):
        if number >= RUNS:
            break
        run_id = f"{name}-{number}"
        context = Context.create(base, POLICY)
        writer = ChainWriter(run_id)
        links: list[bytes] = []
        contexts: list[bytes] = []
        for place, operations in enumerate([None, *steps]):
            if operations is not None:
                context.apply(operations, POLICY).adopt()
                if place % 3 == 0:  # as if nobody could say what changed
                    operations = ops_between(contexts[-1], context.pack())
            about = About("step", place + 1, b"", "agent", 1, place)
            links.append(writer.add(about, context.size_bytes, context.pack, operations))
            contexts.append(context.pack())
        for place, packed in enumerate(contexts):
            assert restore(run_id, links[: place + 1]).context == packed
            versions += 1
        kept = prune(run_id, links, 3)
        assert [restore(run_id, kept[: n + 1]).context for n in range(len(kept))] == contexts[-3:]
    assert versions > 10


@pytest.mark.parametrize("name", ["bfcl_base", "openhands", "sweagent", "tau_airline"])
def test_steps_take_no_more_than_was_measured_for_the_set(name: str) -> None:
    assert measure(name, 10_000).mean("delta") <= CEILINGS[name] * TOLERANCE
