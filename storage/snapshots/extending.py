"""The next links of one run's chain, from the versions that it went through.

Operations come from those who changed the context. Where some are missing, since an engine died
with them, what the stored run says is compared with what the chain's end says; a large context gets
a new base instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from typing import Final

import msgspec

from dalsegno.storage.snapshots.chain import About, ChainWriter, Stage, prune, readable, restore
from dalsegno.storage.snapshots.errors import SnapshotCorrupt
from dalsegno.storage.snapshots.link import Version
from dalsegno.streams.core.context_delta import ops_between
from dalsegno.streams.core.context_masking import masked_bytes, masked_context, split
from dalsegno.streams.core.state_codec import facts_of
from dalsegno.streams.core.versions import Made, moves, standing
from dalsegno.streams.core.warm import PackedRun

DIFF_BYTES_MAX: Final = 65_536
"""Larger contexts are not compared: a new base costs less."""


class NotThere(Exception):  # noqa: N818 - what it is
    """The store has the run at another version than was said: it is tried again later."""


class Chain(msgspec.Struct):
    """A run's chain as far as it is known in memory: where it goes on, and the versions that its
    links end with. `began_ms`: the run's start. `weight`: bytes, when that was last asked.
    """

    began_ms: int
    writer: ChainWriter
    versions: list[int]
    weight: int = 0


class Extended(msgspec.Struct, frozen=True):
    """What is to be written: links by version, None for those that go. `behind`: events that would
    have to be folded for what the chain lacks, None if it lacks nothing. `writer`: the one that
    wrote the links.
    """

    chain: Chain
    writer: ChainWriter
    changes: dict[int, bytes | None]
    faults: tuple[SnapshotCorrupt, ...] = ()
    behind: int | None = None
    pruned: int = 0


def opened(
    run_id: str, began_ms: int, links: Mapping[int, bytes]
) -> tuple[Chain, dict[int, bytes | None], tuple[SnapshotCorrupt, ...]]:
    """A stored chain, the links that cannot be read or are of an earlier run and go, and what is
    wrong with them.
    """
    versions, data = list(links), list(links.values())
    places, faults = readable(run_id, data, began_ms)
    kept = set(places)
    gone: dict[int, bytes | None] = {
        version: None for place, version in enumerate(versions) if place not in kept
    }
    writer = ChainWriter.resume(run_id, [data[place] for place in places])
    return Chain(began_ms, writer, [versions[place] for place in places]), gone, tuple(faults)


class Extending:
    """One run, once."""

    def __init__(self, run_id: str, packed: PackedRun, keep: int) -> None:
        """`packed`: the run as the store has it, at the version of the last one to be added.
        `keep`: links that stay when there are twice as many.
        """
        self._run_id = run_id
        self._packed = packed
        self._keep = keep

    def extend(self, chain: Chain, stored: Mapping[int, bytes], made: Sequence[Made]) -> Extended:
        """`stored`: the links of the chain. Raises `NotThere`: the chain given is not to be used
        any more.
        """
        writer, newest = chain.writer, chain.writer.newest
        new = [each for each in made if newest is None or each.number > newest[0]]
        links: dict[int, bytes] = {}
        behind: int | None = None
        if not new:
            return Extended(chain, writer, {})
        if any(later.number != each.number + 1 for each, later in pairwise(new)):
            raise ValueError(f"run {self._run_id!a}: versions are missing among those noted")
        if newest is None and new[0].first is not None:
            first = new.pop(0)
            links[first.number] = self._first(writer, first)
        elif newest is None or new[0].number != newest[0] + 1:
            last = new[-1]
            if newest is not None:
                behind = max(0, last.offset - newest[1])
            links[last.number], new = self._jump(writer, stored, last), []
        for _, group in groupby(new, key=_of_plan):
            links.update(self._stages(writer, list(group), last=new[-1]))
        return self._retained(chain, {**stored, **links}, links, behind)

    def _first(self, writer: ChainWriter, made: Made) -> bytes:
        first = made.first
        assert first is not None, "a first version"
        about = _about(made, _version(made, 0, made.settled))
        return writer.add(about, made.context_bytes, lambda: first, None)

    def _jump(self, writer: ChainWriter, stored: Mapping[int, bytes], made: Made) -> bytes:
        """Over versions that nobody remembers."""
        context, settled, size = self._now(made)
        operations = None
        if writer.newest is not None and len(context) <= DIFF_BYTES_MAX and stored:
            before = restore(self._run_id, list(stored.values()))
            if len(before.context) <= DIFF_BYTES_MAX:
                operations = ops_between(before.context, context)
        moved = moves(writer.settled, settled)
        count = 0 if operations is None else len(split(operations))
        about = _about(made, _version(made, count, moved))
        return writer.add(about, size, lambda: context, operations)

    def _stages(self, writer: ChainWriter, made: list[Made], *, last: Made) -> dict[int, bytes]:
        counted, stages = 0, []
        for each in made:
            counted += len(split(each.operations))
            version = _version(each, counted, each.settled)
            stages.append(Stage(version, each.context_bytes, each.operations))
        about = _about(made[-1], stages[-1].version)
        # The store has the run at the last version only.
        context = (lambda: self._now(last)[0]) if made[-1] is last else None
        links = writer.extend(about, stages, context)
        numbers = [stages[-1].version.number]
        if len(links) > 1:
            numbers.insert(0, stages[-2].version.number)
        return dict(zip(numbers, links, strict=True))

    def _now(self, made: Made) -> tuple[bytes, dict[int, int], int]:
        """Context, settled steps and size of the run in the store, at this version."""
        head, rows, context = facts_of(self._run_id, self._packed.header, self._packed.parts)
        if head.run_version != made.number:
            raise NotThere(f"run {self._run_id!a}: at {head.run_version}, not {made.number}")
        secrets = made.entry.plan.secrets
        size = masked_bytes(context, context.size_bytes, secrets)
        return masked_context(context, secrets), standing(sorted(rows.items())), size

    def _retained(
        self, chain: Chain, every: dict[int, bytes], links: dict[int, bytes], behind: int | None
    ) -> Extended:
        """With the oldest links left out when there are too many."""
        versions, changes = [*chain.versions, *links], dict[int, bytes | None](links)
        if len(versions) <= 2 * self._keep or len(every) < len(versions):
            return Extended(
                Chain(chain.began_ms, chain.writer, versions), chain.writer, changes, (), behind
            )
        kept, faults = retained(self._run_id, chain.began_ms, every, self._keep)
        changes = {
            version: kept.get(version)
            for version in every
            if kept.get(version) != every[version] or version in links
        }
        writer = ChainWriter.resume(self._run_id, list(kept.values()))
        resumed = Chain(chain.began_ms, writer, list(kept))
        pruned = len(every) - len(kept)
        return Extended(resumed, chain.writer, changes, faults, behind, pruned)


def retained(
    run_id: str, began_ms: int, links: Mapping[int, bytes], keep: int
) -> tuple[dict[int, bytes], tuple[SnapshotCorrupt, ...]]:
    """The newest `keep` links by version, the first of them made a base; what was damaged."""
    versions, data = list(links), list(links.values())
    places, faults = readable(run_id, data, began_ms)
    whole = [data[place] for place in places]
    kept = prune(run_id, whole, keep)
    return dict(zip([versions[place] for place in places][-len(kept) :], kept, strict=True)), tuple(
        faults
    )


def _of_plan(made: Made) -> tuple[bytes, str, int, tuple[tuple[str, int], ...]]:
    """What all versions of one link have in common."""
    return made.entry.plan.digest, made.schema, made.schema_version, made.field_versions


def _version(made: Made, operations: int, settled: tuple[tuple[int, int], ...]) -> Version:
    return Version(
        made.number,
        operations,
        made.step,
        made.at_ms,
        made.offset,
        made.state,
        made.flags,
        settled,
    )


def _about(made: Made, version: Version) -> About:
    plan = made.entry.plan
    dependencies = {name for step in made.entry.steps for name in step.depends_on}
    return About(
        made.step,
        made.number,
        plan.digest,
        made.schema,
        made.schema_version,
        made.at_ms,
        tuple(sorted(dependencies)),
        (version,),
        made.began_ms,
        made.field_versions,
    )
