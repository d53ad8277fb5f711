"""Large values on a real Kafka and a real S3: stored once, verified, waited for, swept."""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.engine.harness import EngineProcess, Lab, metric, wait_for
from tests.integration.test_archive import command, environment

from dalsegno.client import (
    Blob,
    BlobCorrupt,
    BlockingContext,
    Client,
    Context,
    Flow,
    RunState,
    RunView,
    StepState,
    Worker,
    WorkerConfig,
)
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.ops.kafka.writer import Writer
from dalsegno.schemas import values
from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.partitioner import partition_for
from dalsegno.storage.archive.objects import ObjectStat
from dalsegno.storage.archive.s3 import S3Objects

pytestmark = pytest.mark.kafka

PARTITIONS = 2
GRACE_MS = 12_000
DOCUMENT = "".join(f"line {number} of a long document\n" for number in range(180_000))
assert 5_000_000 < len(DOCUMENT) < 6_000_000

reports = Flow("reports", ttl="30m")


@reports.step(reads=["lines"], writes=["document"], timeout="2m")
async def write(ctx: Context) -> dict[str, object]:
    lines = ctx["lines"]
    return {"document": "".join(f"line {n} of a long document\n" for n in range(lines))}  # type: ignore[arg-type]


@reports.step(needs=[write], reads=["document"], writes=["count"], timeout="2m")
def count(ctx: BlockingContext) -> dict[str, object]:
    return {"count": str(ctx["document"]).count("\n")}


@reports.step(needs=[count], reads=["document", "go"], writes=["digest"], timeout="2m")
async def seal(ctx: Context) -> dict[str, object]:
    return {"digest": hashlib.sha256(str(ctx["document"]).encode()).hexdigest()}


class Stand:
    """An engine, a worker and a client over one bucket."""

    def __init__(self, lab: Lab, s3: EmbeddedS3, engine: EngineProcess) -> None:
        self.lab, self.s3, self.engine = lab, s3, engine
        self.client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
        self.worker = Worker(
            [reports], bootstrap_servers=lab.bootstrap, prefix=lab.prefix, name=lab.prefix,
            settings=WorkerConfig(blob_cache_bytes=0),
        )  # fmt: skip
        self._thread = threading.Thread(target=self.worker.run)
        self._thread.start()
        assert self.worker.ready.wait(60)

    def close(self) -> None:
        self.worker.stop()
        self._thread.join(60)
        self.client.close()

    def objects(self) -> S3Objects:
        return S3Objects(self.s3.settings())

    def stored(self) -> list[ObjectStat]:
        return list(self.objects().list(f"{self.lab.prefix}/blobs/"))

    def youngest_ms(self) -> int:
        return time.time_ns() // 1_000_000 - max(each.at_ms for each in self.stored())

    def until(self, run_id: str, step: str, state: StepState) -> RunView:
        def look() -> RunView | None:
            view = self.client.query(run_id, timeout="60s")
            return view if view.step(step).state is state else None

        found = wait_for(f"{step} is {state}", look)
        assert found is not None
        return found


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """With the settings of the stand, which are in this process's environment; a wide terminal."""
    return command({"COLUMNS": "400"}, *arguments)


def blob_keys(listing: str) -> list[str]:
    return [each["key"] for each in json.loads(listing)]


@pytest.fixture
def stand(
    kafka: EmbeddedKafka, fresh_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stand]:
    lab = Lab(kafka.bootstrap, fresh_prefix, tmp_path, PARTITIONS)
    lab.create_topics()
    with EmbeddedS3() as s3:
        where = environment(s3) | {
            "DALSEGNO_ARCHIVE_INTERVAL_MS": "1000",
            "DALSEGNO_BLOB_GRACE_MS": str(GRACE_MS),
            "DALSEGNO_BLOB_SWEEP_INTERVAL_MS": "500",
        }
        for name, value in {**lab.environment(), **where}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DALSEGNO_BLOBS_FROM_BYTES", "65536")
        writer = Writer(lab.settings)
        for number in range(PARTITIONS):
            policy = Policy(stub_keep_ms=1_000, mac_keys=("k1",))
            writer.append_control(PolicySet(partition=number, number=1, policy=policy))
        engine = lab.engine(fold="served", **where)
        engine.wait_ready()
        made = Stand(lab, s3, engine)
        yield made
        made.close()
        lab.stop()


def test_a_document_is_stored_once_read_by_each_step_and_swept_when_its_run_has_left(
    stand: Stand,
) -> None:
    lab = stand.lab
    run_id = stand.client.start(reports, {"lines": 180_000})
    view = stand.until(run_id, "seal", StepState.MISSING_INFO)
    assert view.context is not None
    blob = view.context["document"]
    assert isinstance(blob, Blob)
    assert view.context["count"] == 180_000
    [kept] = stand.stored()
    assert (kept.size, blob.size) == (blob.size, len(values.pack(DOCUMENT)))
    assert f"/{blob.digest.hex()}/" in kept.key
    assert stand.client.read(run_id, blob) == DOCUMENT
    for topic in (lab.topics.events, lab.topics.queue("default"), lab.topics.transitions):
        for number in range(PARTITIONS):
            assert all(len(each.value() or b"") < 16_384 for each in lab.read(topic, number))
    assert "dalsegno_blob_sweep_age_seconds" in stand.engine.text("/metrics")

    stand.client.supply(run_id, {"go": True}, origin="test", timeout="60s")
    result = stand.client.wait(run_id, "120s")
    assert result.state is RunState.SUCCEEDED
    assert result.context is not None
    assert result.context["digest"] == hashlib.sha256(DOCUMENT.encode()).hexdigest()
    wait_for("nothing of the run is left", lambda: not stand.stored(), limit_s=180.0)
    assert metric(stand.engine, "dalsegno_blobs_swept_total") >= 1


def test_a_bit_that_flips_in_the_bucket_fails_the_step_that_reads_it_and_says_so(
    stand: Stand,
) -> None:
    run_id = stand.client.start(reports, {"lines": 20_000})
    view = stand.until(run_id, "seal", StepState.MISSING_INFO)
    [kept] = stand.stored()
    objects = stand.objects()
    data = bytearray(objects.get(kept.key))
    data[len(data) // 2] ^= 1
    objects.delete([kept.key])
    objects.put(kept.key, bytes(data))
    assert view.context is not None
    listed = run_command("blobs", "list", "--json")
    assert (listed.returncode, blob_keys(listed.stdout)) == (0, [kept.key])
    verified = run_command("blobs", "verify")
    assert (verified.returncode, kept.key in verified.stdout.replace("\n", "")) == (1, True)
    with pytest.raises(BlobCorrupt):
        stand.client.read(run_id, view.context["document"])
    stand.client.supply(run_id, {"go": True}, origin="test", timeout="60s")
    failed = stand.until(run_id, "seal", StepState.ESCALATED).step("seal")
    assert "blob_corrupt" in failed.reason + failed.detail
    assert "is damaged" in failed.detail


def test_an_erased_run_takes_its_document_with_it_and_leaves_what_others_hold(
    stand: Stand,
) -> None:
    first, *more = (f"run-{n}" for n in range(40))
    second = next(each for each in more if same_partition(each, first))
    for run_id, lines in ((first, 20_000), (second, 20_000)):
        stand.client.start(reports, {"lines": lines}, run_id=run_id)
        stand.until(run_id, "seal", StepState.MISSING_INFO)
    alone = stand.client.start(reports, {"lines": 15_000})
    stand.until(alone, "seal", StepState.MISSING_INFO)
    assert len(stand.stored()) == 2, "the same document of two runs of a partition is one"
    wait_for("both are older than a grace", lambda: stand.youngest_ms() > GRACE_MS)
    for run_id, removed, left in ((first, 0, 2), (alone, 1, 1)):
        asked = run_command(
            "erase", run_id, "--reason", "asked", "--yes", "--json", "--wait-s", "180"
        )
        receipt = json.loads(asked.stdout)
        assert receipt["confirmed"], asked.stderr
        assert {store: count for store, count, _ in receipt["removed"]}["blobs"] == removed
        assert len(stand.stored()) == left
    stand.client.supply(second, {"go": True}, origin="test", timeout="60s")
    assert stand.client.wait(second, "120s").state is RunState.SUCCEEDED


def same_partition(one: str, other: str) -> bool:
    return partition_for(one, PARTITIONS) == partition_for(other, PARTITIONS)


def test_a_step_waits_for_a_store_that_is_away(stand: Stand) -> None:
    stand.s3.kill()
    run_id = stand.client.start(reports, {"lines": 20_000, "go": True})

    def refused() -> bool:
        return metric(stand.engine, "dalsegno_blob_troubles_total") > 0

    wait_for("the worker has asked for the store", refused)
    assert stand.client.query(run_id).step("write").state is StepState.RUNNING
    stand.s3.start()
    assert stand.client.wait(run_id, "120s").state is RunState.SUCCEEDED
    assert len(stand.stored()) == 1
