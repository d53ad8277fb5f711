"""The archive: what events, transitions and states of runs cost in a real S3 (SeaweedFS), no Kafka.

Segments as an archiver makes them: packed, compressed, put, read back, compared, their manifests
too. The store is on this machine and shares its cores, so the rate is that of both.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from benchmarks.tiers_runs import random_run

from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.schemas import codec
from dalsegno.schemas.events import RunEvent
from dalsegno.storage.archive.archive import Archive, Manifest
from dalsegno.storage.archive.objects import ArchiveError, Objects, ObjectStat
from dalsegno.storage.archive.records import Kept
from dalsegno.storage.archive.s3 import S3Objects
from dalsegno.storage.archive.segment import Kind, SegmentWriter
from dalsegno.streams.core.actions import Audit
from dalsegno.streams.core.archived import Idle, Resting
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.engine.archiving import Blocks

SEGMENT_BYTES = 32 << 20
SEGMENT_RUNS = 500
AT_MS = 1_700_000_000_000
_WHATEVER = Idle(since_ms=1 << 61, due_ms=-1)


class Counting:
    """An object store that counts requests and bytes."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.requests: Counter[str] = Counter()
        self.stored = 0

    def put(self, key: str, data: bytes) -> None:
        self.requests["PUT"] += 1
        self.stored += len(data)
        self._objects.put(key, data)

    def replace(self, key: str, data: bytes) -> None:
        self.requests["PUT"] += 1
        self._objects.replace(key, data)

    def get(self, key: str, first: int = 0, size: int | None = None) -> bytes:
        self.requests["GET"] += 1
        return self._objects.get(key, first, size)

    def stat(self, key: str) -> ObjectStat | None:
        self.requests["HEAD"] += 1
        return self._objects.stat(key)

    def list(self, prefix: str) -> Iterator[ObjectStat]:
        self.requests["LIST"] += 1
        return self._objects.list(prefix)

    def delete(self, keys: Sequence[str]) -> Mapping[str, ArchiveError]:
        self.requests["DELETE"] += 1
        return self._objects.delete(keys)

    def close(self) -> None:
        self._objects.close()


class Figures:
    """Of the archive, for so many runs."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.records = self.raw_bytes = self.stored = self.states = 0
        self.requests: Counter[str] = Counter()
        self.state_requests: Counter[str] = Counter()
        self.seconds = self.state_seconds = self.load_seconds = 0.0

    def rows(self) -> list[tuple[str, str]]:
        """For a table."""
        per_million = 1e6 / self.runs

        def told(requests: Counter[str]) -> str:
            counts = sorted(requests.items())
            return ", ".join(f"{count * per_million:,.0f} {name}" for name, count in counts)

        return [
            ("archive MB/s, events and transitions", f"{self.raw_bytes / self.seconds / 1e6:.1f}"),
            ("archive records/s", f"{self.records / self.seconds:,.0f}"),
            ("S3 requests per million runs: history", told(self.requests)),
            ("S3 requests per million runs: states", told(self.state_requests)),
            ("S3 GB per million runs: history", f"{self.stored * per_million / 1e9:.2f}"),
            ("S3 GB per million runs: states", f"{self.states * per_million / 1e9:.2f}"),
            ("archive µs per run: its state", f"{self.state_seconds / self.runs * 1e6:.1f}"),
            ("bring back ms per run, by ranges", f"{self.load_seconds * 1e3:.1f}"),
        ]


def archive_figures(runs: int) -> Figures:
    """Folds the runs' first two steps, and archives what there is of them."""
    found = Figures(runs)
    partition, rng = Partition(0), random.Random(3)
    events = [e for n in range(runs) for e in islice(random_run(f"a{n:07d}", rng), 5)]
    records, transitions = _fold(partition, events)
    with EmbeddedS3() as s3:
        objects = Counting(S3Objects(s3.settings()))
        archive = Archive(objects, "bench")
        began = time.perf_counter()
        _history(archive, records, transitions)
        found.seconds = time.perf_counter() - began
        found.records = len(records) + len(transitions)
        found.raw_bytes = sum(
            len(each.value or b"") + len(each.key or b"") for each in (*records, *transitions)
        )
        found.stored = objects.stored
        resting = _at_rest(partition)
        began = time.perf_counter()
        found.requests = objects.requests.copy()
        manifests = _states(archive, resting)
        found.state_seconds = (time.perf_counter() - began) * runs / len(resting)
        found.states = (objects.stored - found.stored) * runs // len(resting)
        found.state_requests = objects.requests - found.requests
        wanted = [rng.randrange(len(resting)) for _ in range(50)]
        began = time.perf_counter()
        for place in wanted:
            archive.run(manifests[place // SEGMENT_RUNS], resting[place].run_id)
        found.load_seconds = (time.perf_counter() - began) / len(wanted)
        objects.close()
    return found


def _fold(partition: Partition, events: list[RunEvent]) -> tuple[list[Kept], list[Kept]]:
    records: list[Kept] = []
    transitions: list[Kept] = []
    for offset, event in enumerate(events):
        key, value = event.run_id.encode(), codec.encode(event)
        records.append(Kept(offset, AT_MS, key, value))
        for output in partition.apply(Record(offset, AT_MS, key, value, event)):
            if isinstance(output.action, Audit):
                audited = codec.encode(output.action.transition)
                transitions.append(Kept(len(transitions), AT_MS, key, audited))
    return records, transitions


def _history(archive: Archive, records: list[Kept], transitions: list[Kept]) -> None:
    """Segments of events, each with the transitions that came of them: one to one here."""
    position = 0
    while position < len(records):
        writer = SegmentWriter(0, 1)
        blocks = Blocks(writer, Kind.EVENTS)
        begin = position
        while position < len(records) and blocks.bytes_seen < SEGMENT_BYTES:
            blocks.add(records[position])
            position += 1
        blocks.close()
        audit = Blocks(writer, Kind.TRANSITIONS)
        for each in transitions[begin:position]:
            audit.add(each)
        audit.close()
        archive.put(writer.finish(AT_MS, position))


def _at_rest(partition: Partition) -> list[Resting]:
    """The runs as they would be archived: nothing of them in flight."""
    from dalsegno.ops.put_down import Attempts, follow, give_up

    attempts: Attempts = {}
    follow(partition, attempts)
    give_up(partition, attempts)
    return partition.archived.split(list(partition.run_ids()), _WHATEVER)[0]


def _states(archive: Archive, resting: list[Resting]) -> list[Manifest]:
    made: list[Manifest] = []
    for begin in range(0, len(resting), SEGMENT_RUNS):
        writer = SegmentWriter(0, 1)
        for place, each in enumerate(resting[begin : begin + SEGMENT_RUNS], begin):
            writer.add(Kind.RUN, each.run_id, each.parts, first=place, last=place, count=1)
        made.append(archive.put(writer.finish(AT_MS)))
    return made
