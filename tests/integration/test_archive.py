"""Events go to a real S3 and come back as a run's history, over failures of both sides."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import NotRequired, TypedDict

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.engine.harness import EngineProcess, Lab, metric, wait_for

from dalsegno.client import Client, ContextSchema, Flow, Secret
from dalsegno.ops.archived import ArchiveGap, audit, chain_of, open_archive
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.ops.kafka.reader import Reader
from dalsegno.schemas import codec
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.engine.settings import EngineSettings

pytestmark = pytest.mark.kafka

PARTITIONS = 2
RUNS = 60


def environment(s3: EmbeddedS3) -> dict[str, str]:
    return {
        **s3.environment(),
        "DALSEGNO_ARCHIVE_INTERVAL_MS": "500",
        "DALSEGNO_ARCHIVE_ATTEMPTS": "1",
        "DALSEGNO_ARCHIVE_CONNECT_TIMEOUT_MS": "500",
        "DALSEGNO_ARCHIVE_READ_TIMEOUT_MS": "2000",
    }


def observed() -> Flow:
    flow = Flow("order", ttl="1h", secrets=["card"])
    flow.observed(name="pay", reads=["amount"], writes=["receipt"], timeout="10m")
    return flow


class Paid(TypedDict):
    card: Secret[str]
    amount: str
    receipt: NotRequired[str]


def _newer() -> Flow:
    """The flow after a release that writes amounts as texts."""
    schema = ContextSchema("order", Paid, version=2)
    schema.upcast("amount", from_version=1)(str)
    flow = Flow("order", ttl="1h", context_schema=schema)
    flow.observed(name="pay", reads=["amount"], writes=["receipt"], timeout="10m")
    return flow


newer = _newer()


def archived_to(settings: EngineSettings, partition: int) -> int:
    with open_archive(settings) as archive:
        chain = chain_of(archive, partition)
    return chain[-1].last_offset + 1 if chain else 0


def only_its_own_word_is_left(lab: Lab, settings: EngineSettings, partition: int) -> bool:
    """The last confirmation alone is no reason for another segment."""
    since = archived_to(settings, partition)
    left = [m for m in lab.read(lab.topics.events, partition) if (m.offset() or 0) >= since]
    return all(codec.kind_of(m.value() or b"") == "ArchiveConfirmed" for m in left)


def command(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dalsegno.ops.cli", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def archiving(
    lab: Lab, where: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> tuple[EngineSettings, EngineProcess, Client]:
    """Settings, also of this process from now on; an engine that is ready, and a client."""
    for name, value in {**lab.environment(), **where}.items():
        monkeypatch.setenv(name, value)
    engine = lab.engine(fold="served", **where)
    engine.wait_ready()
    client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
    return EngineSettings(), engine, client


def test_a_runs_history_comes_from_the_bucket_alone_though_engine_and_store_were_killed(
    lab: Lab, s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = environment(s3)
    settings, engine, client = archiving(lab, where, monkeypatch)

    def start(first: int) -> None:
        client.start_many(
            observed(),
            {f"run-{n}": {"amount": n, "card": "4111"} for n in range(first, first + RUNS)},
        )

    def everything_is_archived() -> bool:
        return all(only_its_own_word_is_left(lab, settings, n) for n in range(PARTITIONS))

    start(0)
    wait_for("the first segments", everything_is_archived)
    s3.kill()
    start(RUNS)
    wait_for("a failure", lambda: metric(engine, "dalsegno_archive_failures_total") >= 1)
    assert client.query(f"run-{2 * RUNS - 1}", timeout="30s").flow == "order", "intake goes on"
    engine.kill()
    s3.start()
    engine.restart()
    engine.wait_ready()
    with client.report("run-7") as report:
        report.started("pay")
        report.completed("pay", {"receipt": "r7"})
    wait_for("all of it", everything_is_archived)
    client.close()
    assert engine.term() == 0
    nowhere = {"DALSEGNO_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    done = command(
        {**lab.environment(), **where, **nowhere}, "audit", "run-7", "--archive-only", "--json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["differences"] == []
    assert found["archived"] == len(found["transitions"]) >= 3
    assert [each["cause"] for each in found["transitions"]][:3] == [
        "RunStarted",
        "StepStarted",
        "StepCompleted",
    ]
    assert "4111" not in done.stdout, "secrets are masked"
    compared = command(
        {**lab.environment(), **where, **nowhere}, "diff", "run-7", "0", "2", "--archive-only"
    )
    assert compared.returncode == 0, compared.stderr
    assert "+ /receipt = 'r7'" in compared.stdout
    assert "+ /card (secret)" in compared.stdout
    assert "4111" not in compared.stdout
    rehearsed = command(
        {**lab.environment(), **where, **nowhere}, "context", "migrate",
        "tests.integration.test_archive:newer", "--dry-run", "--archive-only", "--json",
    )  # fmt: skip
    assert rehearsed.returncode == 0, rehearsed.stderr
    assert json.loads(rehearsed.stdout)["runs"] == 2 * RUNS
    checked = command({**lab.environment(), **where, **nowhere}, "archive", "verify", "--json")
    assert checked.returncode == 0, checked.stderr
    listed = json.loads(command({**lab.environment(), **where}, "archive", "list", "--json").stdout)
    assert json.loads(checked.stdout) == {"segments": len(listed), "faults": []}
    largest = max(listed, key=lambda each: each["records"])
    shown = command({**lab.environment(), **where}, "archive", "show", largest["segment"])
    assert "transitions" in shown.stdout
    _rot(s3, settings, partition_for("run-7", PARTITIONS))
    rotten = command({**lab.environment(), **where}, "archive", "verify")
    assert rotten.returncode == 1
    assert "digest" in rotten.stdout


def _rot(s3: EmbeddedS3, settings: EngineSettings, partition: int) -> None:
    """One byte of the first segment changes in the bucket."""
    from dalsegno.storage.archive.s3 import S3Objects

    objects = S3Objects(s3.settings())
    (first, *_) = objects.list(f"{settings.prefix}/segments/{partition:05d}/")
    data = bytearray(objects.get(first.key))
    data[len(data) // 2] ^= 1
    objects.delete([first.key])
    objects.put(first.key, bytes(data))
    objects.close()


def test_a_live_runs_history_goes_on_in_the_log_and_a_gap_is_said_to_be_one(
    lab: Lab, s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = environment(s3)
    settings, engine, client = archiving(lab, where, monkeypatch)
    number = partition_for("live", PARTITIONS)
    asyncio.run(lab.send_bad_header_name(number))
    client.start(observed(), {"amount": 1}, run_id="live")
    wait_for("its start is archived", lambda: archived_to(settings, number) > 0)
    s3.kill()
    with client.report("live") as report:
        report.started("pay")
        report.completed("pay", {"receipt": "r"})
    client.wait("live", "30s")
    s3.start()
    with Reader(settings) as reader, open_archive(settings) as archive:
        found = audit(settings, archive, "live", reader)
    assert found.differences == []
    assert found.log_from is not None or found.archived == len(found.transitions)
    assert [each.cause for each in found.transitions][-1] == "StepCompleted"
    s3.kill()
    client.start(observed(), {"amount": 1}, run_id="live")  # refused, and an event all the same
    client.close()
    engine.wait_caught_up()
    assert engine.term() == 0
    end = lab.end(lab.topics.events, number)
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    place = TopicPartition(lab.topics.events, number, end)
    admin.delete_records([place])[place].result(20)
    s3.start()
    engine.restart()
    engine.wait_ready()
    missing = 'dalsegno_archive_failures_total{trouble="missing"}'
    wait_for("that it is said", lambda: metric(engine, missing) >= 1)
    assert "left their topic before they were archived" in engine.tail()
    with (
        Reader(settings) as reader,
        open_archive(settings) as archive,
        pytest.raises(ArchiveGap, match="are nowhere"),
    ):
        audit(settings, archive, "live", reader)
    assert engine.term() == 0
