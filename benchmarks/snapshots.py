"""Snapshots of real agents' contexts: bytes and microseconds per step, against what others store.

    python -m benchmarks.snapshots [--runs 40] [--no-peers]

Three tables: sizes and times per step for every set of trajectories; what the rule for new bases
costs beside the best choice in hindsight; and the cadence of snapshots beside one that knows the
rate of failures. `langgraph` is what LangGraph's SQLite saver stores at each step of the same
trajectories, in a process and a virtual environment of its own (`--no-peers` leaves it out).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from benchmarks.snapshot_lab import cadences, langgraph, rebases, trajectories
from rich.console import Console
from rich.table import Table

from dalsegno.schemas.control import Policy
from dalsegno.storage.frame import DICTIONARY_BYTES_MAX, store
from dalsegno.storage.snapshots.chain import About, ChainWriter, restore
from dalsegno.storage.snapshots.link import LinkKind, Version, read_link
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_delta import ops_between

POLICY: Final = Policy(context_bytes_max=64 << 20, inline_bytes_max=32 << 20)
CEILINGS: Final = {
    "bfcl_base": 191,
    "openhands": 2_555,
    "super": 707,
    "sweagent": 557,
    "tau_airline": 388,
    "whowhen": 345,
}
"""Mean bytes per step of operations with the chain as dictionary, as measured on these sets."""
TOLERANCE: Final = 1.05
_COLUMNS: Final = ("full", "json", "merge patch", "operations", "delta", "chain", "langgraph")
_pack = msgspec.msgpack.encode


class Set:
    """Sums over one set of trajectories."""

    def __init__(self) -> None:
        self.steps = 0
        self.bytes: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()

    def timed(self, column: str, work: Callable[[], int]) -> None:
        """Adds the bytes that `work` gives, and the time it takes."""
        begun = time.perf_counter()
        self.bytes[column] += work()
        self.seconds[column] += time.perf_counter() - begun

    def mean(self, column: str) -> float:
        return self.bytes[column] / self.steps

    def micros(self, column: str) -> float:
        return self.seconds[column] / self.steps * 1e6


def stored(payload: bytes, dictionary: bytes = b"") -> int:
    """Bytes of a payload as it would be kept, with one byte that says how."""
    return 1 + len(store(payload, dictionary).data)


def merge_patch(old: object, new: object) -> object:
    """RFC 7386, for what it can say."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    patch: dict[str, object] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif _pack(old[key]) != _pack(value):
            patch[key] = merge_patch(old[key], value)
    return patch


def measure(name: str, most: int) -> Set:
    """One set: every run is written as a chain, read back, and compared."""
    found = Set()
    for number, (base, steps) in enumerate(trajectories.runs(name)):
        if number >= most:
            break
        _run(found, f"{name}-{number}", base, steps)
    return found


def _run(found: Set, run_id: str, base: bytes, steps: list[bytes]) -> None:
    context = Context.create(base, POLICY)
    writer = ChainWriter(run_id)
    links = [writer.add(_about(1), context.size_bytes, context.pack, None)]
    tail = context.pack()[-DICTIONARY_BYTES_MAX:]
    contexts = [context.pack()]
    for number, operations in enumerate(steps):
        before = contexts[-1]
        context.apply(operations, POLICY).adopt()
        after = context.pack()
        found.steps += 1
        old, new = msgspec.msgpack.decode(before), msgspec.msgpack.decode(after)
        found.timed("full", lambda: stored(context.pack()))
        found.timed("json", partial(_json_bytes, new))
        found.timed("merge patch", partial(_patch_bytes, old, new))
        found.timed("operations", partial(stored, operations))
        found.timed("delta", partial(stored, operations, tail))
        tail = (tail + operations)[-DICTIONARY_BYTES_MAX:]
        link = partial(writer.add, _about(number + 2), context.size_bytes, context.pack, operations)
        found.timed("chain", lambda link=link: _append(links, link()))  # type: ignore[misc]
        begun = time.perf_counter()
        ops_between(before, after)
        found.seconds["diff"] += time.perf_counter() - begun
        contexts.append(after)
    begun = time.perf_counter()
    newest = restore(run_id, links)
    found.seconds["restore"] += (time.perf_counter() - begun) * len(steps)
    assert newest.context == contexts[-1]
    middle = len(links) // 2
    assert restore(run_id, links[: middle + 1]).context == contexts[middle]
    found.bytes["bases"] += sum(read_link(run_id, x).header.kind is LinkKind.BASE for x in links)


def _append(links: list[bytes], link: bytes) -> int:
    links.append(link)
    return len(link)


def _json_bytes(context: object) -> int:
    return len(json.dumps(context).encode())


def _patch_bytes(old: object, new: object) -> int:
    return stored(_pack(merge_patch(old, new)))


def _about(version: int) -> About:
    """As an engine says it: with the version that the link holds, and the step that it settled."""
    at_ms = 1_700_000_000_000 + version
    settled = ((version, 1),)
    held = Version(version, 1, "step", at_ms, 37 * version, "running", (), settled)
    return About("step", version, b"p" * 32, "agent", 1, at_ms, ("model",), (held,))


def main(argv: list[str]) -> int:
    """Prints the tables; 1 when a set takes more than its ceiling, or a rule misses its bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshots")
    parser.add_argument("--runs", type=int, default=10_000, help="at most so many of each set")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args(argv)
    console = Console()
    missed = 0
    if trajectories.FOLDER.is_dir():
        missed += _sizes(console, options.runs, peers=not options.no_peers)
        missed += rebases.report(console)
    else:
        console.print(f"no real trajectories at {trajectories.FOLDER}: sizes are left out")
    missed += cadences.report(console)
    return int(missed > 0)


def _sizes(console: Console, most: int, *, peers: bool) -> int:
    peer, why = None, "left out"
    if peers:
        try:
            peer = langgraph.install()
        except langgraph.NotInstalled as error:
            why = str(error)
    sizes = Table("set", "steps", *_COLUMNS, "ceiling", title="mean bytes per step")
    times = Table(
        "set",
        "full",
        "merge patch",
        "delta",
        "link",
        "diff",
        "restore",
        "langgraph",
        title="µs per step",
    )
    missed = 0
    for name in trajectories.NAMES:
        found = measure(name, most)
        if peer is not None:
            theirs = langgraph.measure(peer, name, most)
            found.bytes["langgraph"] = theirs.stored_bytes
            found.seconds["langgraph"] = theirs.seconds
        ceiling = CEILINGS[name] * TOLERANCE
        over = most >= 10_000 and found.mean("delta") > ceiling
        missed += over
        row = [f"{found.mean(column):,.0f}" if found.bytes[column] else "-" for column in _COLUMNS]
        mark = f"{ceiling:,.0f}{' MISSED' if over else ''}"
        sizes.add_row(name, str(found.steps), *row, mark)
        columns = ("full", "merge patch", "delta", "chain", "diff", "restore", "langgraph")
        times.add_row(name, *(f"{found.micros(column):,.0f}" for column in columns))
    console.print(sizes)
    console.print("full, merge patch, operations: zstd 3; json: as it is; chain: whole links,")
    console.print("headers, digests and new bases included; restore: of the newest, whole chain")
    console.print(times)
    if peer is None:
        console.print(f"langgraph: {why}")
    else:
        console.print(
            "langgraph: checkpoint and metadata that its SQLite saver stores at each step"
        )
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
