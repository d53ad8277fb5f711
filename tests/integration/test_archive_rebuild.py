"""Kafka is gone, the bucket is left: every run goes on in a new cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import environ
from pathlib import Path

import pytest
from tests.integration.engine.harness import Lab, wait_for
from tests.integration.test_archive import archived_to, environment

from dalsegno.client import Client, Context, Flow, Worker
from dalsegno.ops.archived import chain_of, open_archive
from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.ops.folding import fold_log, fold_records
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import Writer
from dalsegno.ops.whole_log import whole_log
from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import StepStarted
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.engine.settings import EngineSettings

pytestmark = pytest.mark.kafka

CLI = "dalsegno.ops.cli"
PARTITIONS = 2
ENDED, OPEN, RUNNING = 20, 120, 40
parcel = Flow("parcel", ttl="2h")


@parcel.step(reads=["item"], writes=["price"], timeout="60s")
def quote(ctx: Context) -> dict[str, object]:
    return {"price": len(str(ctx["item"]))}


@parcel.step(needs=[quote], reads=["price"], writes=["sent"], timeout="60s")
def send(ctx: Context) -> dict[str, object]:
    return {"sent": f"for {ctx['price']}"}


@pytest.fixture
def lab(kafka: EmbeddedKafka, fresh_prefix: str, tmp_path: Path) -> Iterator[Lab]:
    made = Lab(kafka.bootstrap, fresh_prefix, tmp_path / "old", PARTITIONS)
    made.folder.mkdir()
    made.create_topics()
    yield made
    made.stop()


@pytest.fixture
def another(fresh_prefix: str, tmp_path: Path) -> Iterator[Lab]:
    """The new cluster: another Kafka, the same prefix of topics."""
    with EmbeddedKafka() as kafka:
        made = Lab(kafka.bootstrap, fresh_prefix, tmp_path / "new", PARTITIONS)
        made.folder.mkdir()
        made.create_topics()
        yield made
        made.stop()


@contextmanager
def worker(lab: Lab) -> Iterator[None]:
    made = Worker([parcel], bootstrap_servers=lab.bootstrap, prefix=lab.prefix, name=lab.prefix)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        assert made.ready.wait(60)
        yield
    finally:
        made.stop()
        thread.join(60)


def rebuild(env: dict[str, str], prefix: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "dalsegno.ops.cli",
            "archive",
            "rebuild",
            "--from",
            prefix,
            "--json",
        ],
        env={**environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def contexts(partition: Partition) -> dict[bytes, bytes]:
    """Every part of every context of runs that have not ended, as bytes."""
    live = {each.run_id for each in partition.carrying.live()}
    return {
        key: value
        for key, value in partition.parts().items()
        if key[:1] == b"c" and key[1:].partition(b"\0")[0].decode() in live
    }


def folded_from_the_archive(settings: EngineSettings, number: int) -> Partition:
    partition = Partition(number, topic=settings.topics.events)
    with open_archive(settings) as archive:
        raw = whole_log(
            settings, number, archive=archive, chain=chain_of(archive, number), reader=None
        )
        for each in fold_records(settings, raw, number, PARTITIONS):
            partition = each.partition
    return partition


def folded_from_the_log(settings: EngineSettings, number: int) -> Partition:
    partition = Partition(number, topic=settings.topics.events)
    with Reader(settings) as reader:
        for each in fold_log(settings, reader, number, PARTITIONS):
            partition = each.partition
    return partition


def start_everything(lab: Lab, client: Client) -> None:
    """Runs that end, some whose step is handed out, some whose step runs, one that is held."""
    for number in range(PARTITIONS):
        policy = PolicySet(partition=number, number=7, policy=Policy(steps_max=777))
        Writer(lab.settings).append_control(policy)
    with worker(lab):
        names = [
            client.start(parcel, {"item": f"item {n}"}, run_id=f"ended-{n}") for n in range(ENDED)
        ]
        for name in names:
            assert client.wait(name, "120s").succeeded
    client.start_many(parcel, {f"open-{n}": {"item": "x" * n} for n in range(OPEN)})
    client.start(parcel, {"item": "held"}, run_id="held")
    client.pause("held", reason="the test holds it")
    lab.send(
        StepStarted(run_id=f"open-{n}", step="quote", epoch=1, worker="gone", incarnation=1)
        for n in range(RUNNING)
    )
    lab.flush()


def test_every_run_goes_on_in_an_empty_cluster_when_kafka_is_gone(
    lab: Lab, another: Lab, s3: EmbeddedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = environment(s3)
    for name, value in {**lab.environment(), **where}.items():
        monkeypatch.setenv(name, value)
    settings = EngineSettings()
    engine = lab.engine(fold="served", **where)
    engine.wait_ready()
    client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
    start_everything(lab, client)
    ends = [lab.end(lab.topics.events, number) for number in range(PARTITIONS)]
    wait_for(
        "all of it is archived",
        lambda: all(archived_to(settings, number) >= end for number, end in enumerate(ends)),
    )
    client.close()
    engine.kill()
    before = [folded_from_the_archive(settings, number) for number in range(PARTITIONS)]

    new = {**another.environment(), **where, "DALSEGNO_ARCHIVE_PREFIX": "after"}
    refused = rebuild({**new, **lab.environment()}, settings.archive_prefix)
    said = refused.communicate(timeout=120)[1]
    assert refused.returncode == ExitCode.REFUSED, said
    assert "only an empty cluster is rebuilt" in said

    cut = rebuild(new, settings.archive_prefix)
    wait_for(
        "it has begun", lambda: cut.poll() is not None or another.end(another.topics.events, 0) > 1
    )
    cut.kill()
    cut.communicate()
    again = rebuild(new, settings.archive_prefix)
    out, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    found = json.loads(out)
    assert [each["left"] for each in found] == [[], []]
    assert sum(each["runs"] for each in found) == OPEN + 1
    assert sum(each["ended"] for each in found) == ENDED

    for name, value in new.items():
        monkeypatch.setenv(name, value)
    after = [folded_from_the_log(EngineSettings(), number) for number in range(PARTITIONS)]
    assert [contexts(each) for each in after] == [contexts(each) for each in before]
    assert [each.policy.steps_max for each in after] == [777] * PARTITIONS
    assert all(each.in_flight for each in after), "what was in flight is handed out again"
    go_on(another, new)


def go_on(lab: Lab, env: dict[str, str]) -> None:
    engine = lab.engine(fold="served", **env)
    engine.wait_ready()
    client = Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix)
    with worker(lab):
        for number in range(OPEN):
            result = client.wait(f"open-{number}", "120s")
            assert result.succeeded
        assert client.query("held", timeout="60s").state == "paused"
        client.resume("held")
        assert client.wait("held", "120s").succeeded
    client.start(parcel, {"item": "item 3"}, run_id="ended-3")  # the same start: nothing runs again
    assert client.query("ended-3", timeout="60s").state == "succeeded"
    client.close()
    assert engine.term() == 0
    checked = subprocess.run(
        [sys.executable, "-m", CLI, "verify"],
        env={**environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
