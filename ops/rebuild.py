"""Runs into an empty cluster, from the archive of one that is gone.

Per partition: the archived events are folded, attempts that were in flight are given up (their
queues are gone), and each run goes into the new log by one signed `RunRestored`, behind the policy
that was in force. A run that had something in flight comes in paused and is resumed at once: then
its step goes out again, under a higher epoch, as its retry says, and effects of unknown outcome by
their own policy. Runs that have ended leave their stubs, so a late event meets what it met before.

Broken off at any place it goes on from there: what the new log has is not appended again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from dalsegno.ops.archived import chain_of, counts_of
from dalsegno.ops.folding import fold_records
from dalsegno.ops.kafka.fault_points import append_to_faults
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import Signed, Writer
from dalsegno.ops.put_down import LOST, SOURCE, apply_here, follow, give_up
from dalsegno.ops.whole_log import whole_log
from dalsegno.schemas import codec
from dalsegno.schemas.control import PolicySet, RunRestored
from dalsegno.schemas.events import RunResumed
from dalsegno.storage.archive.archive import Archive
from dalsegno.storage.archive.objects import ArchiveError, Objects, Trouble
from dalsegno.storage.archive.segment import SegmentCorrupt
from dalsegno.storage.blobs.store import FOLDER
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.carrying import Carried
from dalsegno.streams.core.cold import ColdHead
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.state_segments import States

_RESUME: Final = f"{SOURCE}-resume"


class RebuildRefused(Exception):  # noqa: N818 - what it is
    """The cluster, or the archive, is not one that can be rebuilt."""


class Rebuilt(NamedTuple):
    """What became of one partition.

    `end`, `end_ms`: up to where events were archived, and append time of the last one: what came
    after it is not in the archive. `runs` that go on, `ended` of which stubs were brought, `before`
    of both that an earlier try had brought. `left`: runs that could not be brought, and why.
    """

    partition: int
    end: int
    end_ms: int
    runs: int
    ended: int
    before: int
    left: tuple[tuple[str, str], ...]


def check(settings: EngineSettings, archive: Archive, reader: Reader) -> int:
    """How many partitions there are. Raises `RebuildRefused`, `ReadError`, as reading does."""
    topic = settings.topics.events
    count = reader.partitions(topic)
    archived = set(counts_of(archive))
    if not archived:
        raise RebuildRefused("there is nothing in the archive: is it this prefix?")
    if archived != {count}:
        raise RebuildRefused(
            f"{topic} has {count} partitions, the archive is of {sorted(archived)}: runs are "
            "placed by that number; make the topics with it"
        )
    for number in range(count):
        _begun(settings, reader, number)
    return count


def rebuild(
    settings: EngineSettings,
    archive: Archive,
    reader: Reader,
    writer: Writer,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Rebuilt]:
    """All partitions, in turn.

    Raises `RebuildRefused`, `ReadError`, `AppendError`, `NoKeyError`, `ArchiveGap`, `ArchiveError`,
    `SegmentCorrupt`, `RecordsCorrupt`.
    """
    count = check(settings, archive, reader)
    for number in range(count):
        begun = _begun(settings, reader, number)
        yield _Rebuild(settings, archive, number, writer).into(begun, count, progress)


def copy_blobs(objects: Objects, old: str, new: str) -> int:
    """The blobs of one archive into another: contexts name them. How many there were to copy.

    Raises `ArchiveError`.
    """
    there = {each.key.removeprefix(f"{new}/") for each in objects.list(f"{new}/{FOLDER}")}
    missing = [
        name
        for each in objects.list(f"{old}/{FOLDER}")
        if (name := each.key.removeprefix(f"{old}/")) not in there
    ]
    for name in missing:
        objects.put(f"{new}/{name}", objects.get(f"{old}/{name}"))
    return len(missing)


class _Begun(NamedTuple):
    """What an earlier try has appended. `policy`: whether it has begun at all."""

    policy: bool
    brought: frozenset[str]
    resumed: frozenset[str]


def _begun(settings: EngineSettings, reader: Reader, number: int) -> _Begun:
    """Raises `RebuildRefused` when somebody else has written there before."""
    topic = settings.topics.events
    brought: set[str] = set()
    resumed: set[str] = set()
    policy = False
    for record in reader.read(topic, number):
        event = codec.decode_if(msgspec.Struct, record.value)
        if not policy:
            if not isinstance(event, PolicySet) or event.source != SOURCE:
                raise RebuildRefused(
                    f"{topic}[{number}] is not empty: only an empty cluster is rebuilt. Stop its "
                    "engines, and make new topics"
                )
            policy = True
        elif isinstance(event, RunRestored) and event.source == SOURCE:
            brought.add(event.run_id)
        elif isinstance(event, RunResumed) and event.request_id == _RESUME:
            resumed.add(event.run_id)
    return _Begun(policy, frozenset(brought), frozenset(resumed))


class _Rebuild:
    """One partition."""

    def __init__(
        self, settings: EngineSettings, archive: Archive, number: int, writer: Writer
    ) -> None:
        self._settings = settings
        self._archive = archive
        self._states = States(archive)
        self._number = number
        self._writer = writer
        self._left: list[tuple[str, str]] = []

    def into(self, begun: _Begun, count: int, progress: Callable[[int], None]) -> Rebuilt:
        """Appends what is missing."""
        partition, attempts = self._fold(count, progress)
        end, end_ms = partition.position, partition.log_ms
        self._bring_back(partition)
        follow(partition, attempts)
        paused = give_up(partition, attempts)
        topic = self._settings.topics.events
        if not begun.policy:
            policy = _policy(partition, self._number)
            append_to_faults(self._settings, policy)
            self._writer.append_control(policy)
        brought: Counter[str] = Counter()
        self._writer.append_all(topic, self._number, self._records(partition, begun, brought))
        self._early(partition)
        # Behind all of them: what goes on may need room that the others take.
        left = {run_id for run_id, _ in self._left}
        resumed = sorted(paused - left - begun.resumed)
        self._writer.append_all(topic, self._number, map(_resumed, resumed))
        return Rebuilt(
            partition=self._number,
            end=end,
            end_ms=end_ms,
            runs=brought["runs"],
            ended=brought["ended"],
            before=len(begun.brought),
            left=tuple(self._left),
        )

    def _records(
        self, partition: Partition, begun: _Begun, brought: Counter[str]
    ) -> Iterator[Signed]:
        """One after the other, so that there is never more than one run's state beside the fold."""
        for what, found in (("runs", self._runs(partition)), ("ended", partition.carrying.ended())):
            for each in found:
                brought[what] += 1
                if each.run_id not in begun.brought:
                    yield self._restored(each)

    def _fold(
        self, count: int, progress: Callable[[int], None]
    ) -> tuple[Partition, dict[tuple[str, str], Attempt]]:
        """The partition as of the last archived event, and its attempts in flight."""
        partition = Partition(self._number, topic=self._settings.topics.events)
        attempts: dict[tuple[str, str], Attempt] = {}
        raw = whole_log(
            self._settings,
            self._number,
            archive=self._archive,
            chain=chain_of(self._archive, self._number),
            reader=None,
            progress=progress,
        )
        for folded in fold_records(self._settings, raw, self._number, count):
            partition = folded.partition
            follow(partition, attempts)
        return partition, attempts

    def _bring_back(self, partition: Partition) -> None:
        """Runs in the archive that something waits for: they are live again, as they would be."""
        for run_id, head in partition.archived.wanted():
            parts = self._parts(run_id, head)
            if isinstance(parts, bytes):
                apply_here(
                    partition,
                    RunRestored(run_id=run_id, restore_id=SOURCE, parts=parts, digest=head.digest),
                )

    def _runs(self, partition: Partition) -> Iterator[Carried]:
        carrying = partition.carrying
        for each in carrying.live():
            yield from self._or_left(each.run_id, carrying.run(each.run_id))
        for run_id, cold in carrying.archived():
            found: Carried | str
            parts = self._parts(run_id, cold.head)
            if isinstance(parts, str):
                found = parts
            else:
                found = carrying.with_plans(run_id, parts, cold.head.plan_digest)
            yield from self._or_left(run_id, found)

    def _early(self, partition: Partition) -> None:
        """Events that wait for a run which never started have nowhere to go."""
        for run_id, count in partition.carrying.early():
            self._left.append((run_id, f"{count} events wait for its start"))

    def _or_left(self, run_id: str, found: Carried | str) -> Iterator[Carried]:
        if isinstance(found, Carried):
            yield found
        else:
            self._left.append((run_id, found))

    def _parts(self, run_id: str, head: ColdHead) -> bytes | str:
        """A run's state, or why the archive does not have it: that costs this run, and no other."""
        try:
            return self._states.parts(head.segment, run_id, head.digest)
        except SegmentCorrupt as error:
            return str(error)
        except ArchiveError as error:
            if error.trouble not in {Trouble.MISSING, Trouble.DAMAGED}:
                raise
            return str(error)

    def _restored(self, carried: Carried) -> Signed:
        event = RunRestored(
            source=SOURCE,
            run_id=carried.run_id,
            restore_id=SOURCE,
            parts=carried.parts,
            digest=carried.digest,
            absent=True,
        )
        return self._writer.signed(self._number, event)


def _policy(partition: Partition, number: int) -> PolicySet:
    return PolicySet(
        source=SOURCE,
        partition=number,
        number=max(0, partition.numbers.get(PolicySet.__name__, 0)),
        policy=partition.policy,
    )


def _resumed(run_id: str) -> Signed:
    event = RunResumed(run_id=run_id, request_id=_RESUME, source=SOURCE, reason=LOST)
    return run_id.encode(), codec.encode(event), ()
