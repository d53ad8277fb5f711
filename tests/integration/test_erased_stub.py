"""A run whose state is in S3 is erased: no store has a byte of it, and the rest is as it was."""

from __future__ import annotations

import json
import secrets
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.engine.harness import Lab, wait_for
from tests.integration.test_archive import archived_to, command
from tests.integration.test_erasure import (
    CLEANED,
    KEPT,
    LIMIT_S,
    PARTITIONS,
    begun,
    configure,
    in_archive,
    in_files,
    lab,
    lab_topics,
    s3,
)

from dalsegno.client import Client, Flow
from dalsegno.ops.archived import open_archive
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.schemas.partitioner import partition_for
from dalsegno.storage.archive.segment import Kind
from dalsegno.streams.engine.settings import EngineSettings

__all__ = ["begun", "lab", "s3"]

pytestmark = pytest.mark.kafka

STORES = ("kafka", "data", "s3")


def waiting() -> Flow:
    made = Flow("order", ttl="1h")
    made.observed(name="pay", reads=["name"], writes=["receipt"], timeout="10m")
    return made


def in_states(settings: EngineSettings, mark: bytes) -> bool:
    """Whether a state of a run in the archive has it."""
    with open_archive(settings) as archive:
        return any(
            entry.kind is Kind.RUN and mark in archive.read(manifest, entry)
            for manifest in archive.manifests()
            for entry in archive.index(manifest).entries
        )


def cut(lab: Lab, settings: EngineSettings, partition: int) -> None:
    """Kafka forgets what the archive has."""
    admin = AdminClient({"bootstrap.servers": lab.bootstrap})
    place = TopicPartition(lab.topics.events, partition, archived_to(settings, partition))
    admin.delete_records([place])[place].result(30)


def test_a_run_whose_state_is_in_the_archive_is_erased_from_every_store(
    lab: Lab, s3: EmbeddedS3, begun: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, run_id = f"marker-{secrets.token_hex(12)}", f"subject-{secrets.token_hex(6)}"
    raw, number = mark.encode(), partition_for(run_id, PARTITIONS)
    neighbour = next(
        name for n in range(99) if partition_for(name := f"run-{n}", PARTITIONS) == number
    )
    environment = {
        **lab.environment(), **s3.environment(),
        "DALSEGNO_ARCHIVE_IDLE_MS": "1000",
        "DALSEGNO_ARCHIVE_INTERVAL_MS": "200",
        "DALSEGNO_DATA_DIR": str(tmp_path / "data"),
        "DALSEGNO_WARM_FLUSH_MS": "100",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = EngineSettings()
    topics = [name for name in lab_topics(lab) if name.startswith(lab.prefix)]
    changelog, events, owners = lab.topics.runs_changelog, lab.topics.events, lab.topics.owners
    configure(lab, [changelog], CLEANED)
    configure(lab, [events], {"segment.ms": "1000", "file.delete.delay.ms": "100"})
    configure(lab, [t for t in topics if "changelog" not in t and t not in {events, owners}], KEPT)
    engine = lab.engine(fold="served", **environment)
    engine.wait_ready()
    client = begun.enter_context(
        closing(Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix))
    )
    client.start_many(waiting(), {run_id: {"name": mark}, neighbour: {"name": "x"}})
    for name in (run_id, neighbour):
        wait_for(
            f"{name} is away",
            lambda name=name: client.query(name, timeout="60s").kind == "archived",
            LIMIT_S,
        )
    wait_for("its events are archived", lambda: in_archive(settings, raw), LIMIT_S)
    assert in_states(settings, raw)
    assert in_files(tmp_path / "s3", raw)

    asked = command(
        environment, "erase", run_id, "--reason", "asked for", "--yes", "--json",
        "--wait-s", str(LIMIT_S),
    )  # fmt: skip
    receipt = json.loads(asked.stdout)
    assert receipt["confirmed"], asked.stderr
    assert {store: count for store, count, _ in receipt["removed"]}["archive"] >= 2
    assert not in_archive(settings, raw)
    assert not in_archive(settings, run_id.encode())
    assert in_files(tmp_path / "data", raw) == []
    assert "it was erased" in command(environment, "show", run_id).stderr

    def gone() -> bool:
        s3.vacuum()
        # So that its logs close their files; and what is said of it is archived before it is cut.
        lab.send_raw(number, b"k", b"garbage")
        lab.flush()
        cut(lab, settings, number)
        # A database names the keys at which its files begin and end until it is opened anew.
        return not any(in_files(tmp_path / place, raw) for place in STORES) and not any(
            in_files(tmp_path / place, run_id.encode()) for place in ("kafka", "s3")
        )

    wait_for("every byte to be gone", gone, LIMIT_S, 0.5)
    assert not in_archive(settings, raw)
    assert not in_archive(settings, run_id.encode())
    back = command(environment, "restore", neighbour)
    assert back.returncode == 0, back.stderr
    assert client.query(neighbour, timeout="60s").context == {"name": "x"}
    assert command(environment, "archive", "verify").returncode == 0
    assert engine.term() == 0
    checked = command(environment, "verify", "--json", "--partition", str(number))
    assert checked.returncode == 0, checked.stdout
    report = json.loads(checked.stdout)[0]
    assert (report["compared"], report["differences"]) == ("archive", [])
    assert report["archived_to"] > 0
    assert report["erased"] >= 2
