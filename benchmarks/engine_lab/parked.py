"""A changelog of many runs that wait for a person, and its restore."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import msgspec
from benchmarks.engine_lab.load import run_events
from confluent_kafka import Producer

from dalsegno.schemas.codec import encode
from dalsegno.schemas.events import FailureType, RunStarted, StepFailed
from dalsegno.schemas.outputs import Claim
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.engine.restore import CLAIM_KEY, RestoreJob, RestoreProgress, restore
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.sinks import PartsSink, StoreSink
from dalsegno.streams.engine.warm_tier import WarmTier

NAME = "run-{:09d}"
_MARK = b"?" * 400
_AT_MS = 1_700_000_000_000
_TRANSACTION = 30_000


def template(partition: int) -> dict[bytes, bytes]:
    """The parts of a partition with one run, number 0, whose second step waits for a person."""
    fold, name = Partition(partition), NAME.format(0)
    refused = StepFailed(
        run_id=name, step="step1", epoch=1, failure_type=FailureType.UNSAFE, message="ask"
    )
    for offset, event in enumerate([*islice(run_events(name), 4), refused]):
        if isinstance(event, RunStarted):
            first = msgspec.msgpack.encode({"input": _MARK})
            event = msgspec.structs.replace(event, context=first)  # noqa: PLW2901
        fold.apply(Record(offset, _AT_MS, b"", b"", event))
    assert not fold.in_flight, "it waits"
    return {key: value or b"" for key, value in fold.capture()}


def records(partition: int, first: int, runs: int) -> Iterator[tuple[bytes, bytes]]:
    """Changelog records of so many runs; random contexts."""
    parts, name = template(partition), NAME.format(0).encode()
    yield from ((key, value) for key, value in parts.items() if name not in key)
    own = [(key, value) for key, value in parts.items() if name in key]
    for number in range(first, first + runs):
        run = NAME.format(number).encode()
        for key, value in own:
            yield key.replace(name, run), value.replace(_MARK, os.urandom(len(_MARK)))


class Changelog:
    """Writes to the runs changelog of a prefix, in transactions, as engines do."""

    def __init__(self, made: EngineSettings) -> None:
        self.settings = made
        self._claims = 0
        self._producer = Producer(
            {
                "bootstrap.servers": made.bootstrap_servers,
                "transactional.id": made.topics.runs_changelog,
                "batch.size": 1_000_000,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._producer.init_transactions()

    def write(self, partition: int, entries: Iterator[tuple[bytes, bytes]]) -> int:
        """Append them; how many."""
        count, topic = 0, self.settings.topics.runs_changelog
        while chunk := list(islice(entries, _TRANSACTION)):
            self._producer.begin_transaction()
            for key, value in chunk:
                self._producer.produce(topic, value, key, partition=partition)
            self._producer.commit_transaction()
            count += len(chunk)
        return count

    def claim(self, partition: int) -> str:
        """A new owner's claim, which ends a restore."""
        self._claims += 1
        claim = Claim(
            partition=partition,
            owner="bench",
            url="",
            claim_id=f"bench-{self._claims}",
            rules_known=(1,),
            code_version="0",
            claimed_at_ms=0,
        )
        self.write(partition, iter([(CLAIM_KEY, encode(claim))]))
        return claim.claim_id


class Reading(NamedTuple):
    """Seconds until all partitions can go on, and the changelog records read for it."""

    seconds: float
    records: int
    runs: int


def read_back(log: Changelog, partitions: int, tier: WarmTier | None) -> Reading:
    """Restore all partitions, two at a time, with their stores or all in memory."""
    made = log.settings
    claims = [log.claim(partition) for partition in range(partitions)]

    def one(partition: int) -> tuple[int, int]:
        progress = RestoreProgress()
        job = RestoreJob(
            partition, claims[partition], made.topics.events, made.topics.runs_changelog
        )
        sink = PartsSink() if tier is None else StoreSink(tier, partition)
        restore(made, job, progress, sink)
        if isinstance(sink, StoreSink):
            opened = Partition.open(partition, sink.opened)
        else:
            opened = Partition.restore(partition, sink.parts.items())
        runs = opened.open_runs
        if tier is not None and isinstance(sink, StoreSink):
            sink.opened.flush()
            tier.close_store(partition, sink.opened)
        return progress.records, runs

    began = time.perf_counter()
    with ThreadPoolExecutor(made.restores_at_once) as pool:
        found = list(pool.map(one, range(partitions)))
    took = time.perf_counter() - began
    return Reading(took, sum(each[0] for each in found), sum(each[1] for each in found))
