"""A run is erased: after the date no byte of it is in any store, Kafka's log folders included."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import zstandard
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.integration.engine.harness import Lab, wait_for
from tests.integration.test_archive import command

from dalsegno.client import Client, Flow
from dalsegno.ops.archived import open_archive
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.embedded.s3 import EmbeddedS3
from dalsegno.schemas.events import FailureType, StepStarted
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.engine.settings import EngineSettings

pytestmark = pytest.mark.kafka

PARTITIONS = 2
OTHERS = 20
LIMIT_S = 180.0
QUICK = {
    "log.retention.check.interval.ms": "500",
    "log.cleaner.backoff.ms": "300",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "500",
}
CLEANED = {
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "1000",
    "file.delete.delay.ms": "100",
}
# Longer than it takes an engine to see that there is a limit, and to archive what it would lose.
EVENTS_KEPT = {"segment.ms": "1000", "retention.ms": "40000", "file.delete.delay.ms": "100"}
KEPT = {"segment.ms": "1000", "retention.ms": "2000", "file.delete.delay.ms": "100"}
FRAME = zstandard.FRAME_HEADER
BYTES_MAX = 64 << 20


@pytest.fixture
def lab(tmp_path: Path, fresh_prefix: str) -> Iterator[Lab]:
    with EmbeddedKafka(tmp_path / "kafka", config=QUICK) as kafka:
        made = Lab(kafka.bootstrap, fresh_prefix, tmp_path, PARTITIONS)
        made.create_topics()
        yield made
        made.stop()


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[EmbeddedS3]:
    with EmbeddedS3(tmp_path / "s3") as made:
        yield made


@pytest.fixture
def begun() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def configure(lab: Lab, topics: list[str], config: dict[str, str]) -> None:
    client = AdminClient({"bootstrap.servers": lab.bootstrap})
    resources = [
        ConfigResource(
            ConfigResource.Type.TOPIC,
            topic,
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in config.items()
            ],
        )
        for topic in topics
    ]
    for future in client.incremental_alter_configs(resources).values():
        future.result(30)


def flow() -> Flow:
    made = Flow("order", ttl="1h", secrets=["card"])
    made.observed(name="pay", reads=["name", "scan"], writes=["receipt"], timeout="10m")
    return made


def in_files(folder: Path, mark: bytes) -> list[str]:
    """Files that have the mark, as it is or in a zstd frame."""
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            data = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:
            continue  # the broker has just deleted it
        if mark in data or any(mark in plain for plain in frames(data)):
            found.append(str(path.relative_to(folder)))
    return found


def frames(data: bytes) -> Iterator[bytes]:
    """What the zstd frames in a file say, wherever they begin."""
    at = data.find(FRAME)
    while at >= 0:
        try:
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
        except zstandard.ZstdError:
            yield b""
        at = data.find(FRAME, at + 4)


def in_archive(settings: EngineSettings, mark: bytes) -> bool:
    """Whether any payload of the archive has it."""
    with open_archive(settings) as archive:
        for manifest in archive.manifests():
            for entry in archive.index(manifest).entries:
                if mark in archive.read(manifest, entry):
                    return True
    return False


def packages(lab: Lab, mark: bytes) -> bool:
    topic = lab.topics.escalations
    found = [m.value() or b"" for n in range(PARTITIONS) for m in lab.read(topic, n)]
    return any(mark in value for value in found)


def letters(lab: Lab) -> bool:
    return any(lab.read(lab.topics.dead_letters, n) for n in range(PARTITIONS))


def begin(lab: Lab, client: Client, run_id: str, mark: str) -> None:
    """The mark is in a context, in a secret, in a large value, in a package for people and in a
    dead letter.
    """
    client.start_many(
        flow(), {f"run-{n}": {"name": "x", "scan": "", "card": "0"} for n in range(OTHERS)}
    )
    scan = f"{mark} " + "." * 5_000
    client.start(flow(), {"name": mark, "scan": scan, "card": f"4111-{mark}"}, run_id=run_id)
    with client.report(run_id) as report:
        report.started("pay")
        report.failed("pay", FailureType.UNSAFE, f"declined for {mark}")
    number = partition_for(run_id, PARTITIONS)
    lab.send_raw(number, run_id.encode(), b"garbage of " + mark.encode())
    lab.flush()


def test_after_the_date_no_store_has_a_byte_of_it(
    lab: Lab, s3: EmbeddedS3, begun: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, run_id = f"marker-{secrets.token_hex(12)}", f"subject-{secrets.token_hex(6)}"
    configure(lab, [lab.topics.runs_changelog], CLEANED)
    environment = {
        **lab.environment(), **s3.environment(),
        "DALSEGNO_ARCHIVE_INTERVAL_MS": "500",
        "DALSEGNO_DATA_DIR": str(tmp_path / "data"),
        "DALSEGNO_WARM_FLUSH_MS": "100",
        "DALSEGNO_BLOBS_FROM_BYTES": "1000",
        "DALSEGNO_BLOB_GRACE_MS": "2000",
        "DALSEGNO_BLOB_SWEEP_INTERVAL_MS": "1000",
    }  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = EngineSettings()
    engine = lab.engine(fold="served", **environment)
    engine.wait_ready()
    client = begun.enter_context(
        closing(Client(bootstrap_servers=lab.bootstrap, prefix=lab.prefix))
    )
    begin(lab, client, run_id, mark)
    raw = mark.encode()
    wait_for("a package", lambda: packages(lab, raw), LIMIT_S)
    wait_for("a dead letter", lambda: letters(lab), LIMIT_S)
    wait_for("the archive", lambda: in_archive(settings, raw), LIMIT_S)
    assert [each for each in in_files(tmp_path / "s3", raw) if each.endswith(".dat")], "the blob"
    wait_for("the database", lambda: in_files(tmp_path / "data", raw), LIMIT_S)
    topics = {Path(each).parts[1].rpartition("-")[0] for each in in_files(tmp_path / "kafka", raw)}
    assert topics >= {
        lab.topics.events, lab.topics.runs_changelog, lab.topics.escalations,
        lab.topics.dead_letters,
    }  # fmt: skip

    asked = command(
        environment, "erase", run_id, "--reason", "asked for", "--by", "ana", "--yes", "--json",
        "--wait-s", str(LIMIT_S),
    )  # fmt: skip
    receipt = json.loads(asked.stdout)
    assert receipt["confirmed"], asked.stderr
    assert asked.returncode == 1, "the events never leave their topic: there is no date"
    assert receipt["gone_by_ms"] is None
    assert run_id not in asked.stdout
    removed = {store: count for store, count, _ in receipt["removed"]}
    assert set(removed) == {"memory", "changelog", "local database", "archive", "blobs"}
    assert removed["archive"] >= 4
    assert not in_archive(settings, raw)
    assert not in_archive(settings, run_id.encode())
    assert in_files(tmp_path / "data", raw) == []
    checked = command(environment, "verify", "--json")
    assert checked.returncode == 0, checked.stdout
    assert "it was erased" in command(environment, "show", run_id).stderr
    plain = command(environment, "erase", run_id, "--receipt").stdout
    assert f"{lab.topics.events}" in plain
    assert "retention.ms has no limit: set one" in plain
    assert command(environment, "audit", run_id).returncode == 5, "nothing is left to audit"

    late = StepStarted(run_id=run_id, step="pay", epoch=0, attempt=2, source=mark)
    lab.send([late])
    wait_for("the late report to be refused", lambda: told_late(environment, run_id) == 1, LIMIT_S)

    deleting = [
        name for name in lab_topics(lab) if name.startswith(lab.prefix) and "changelog" not in name
    ]
    other = [name for name in deleting if name not in {lab.topics.owners, lab.topics.events}]
    configure(lab, other, KEPT)
    configure(lab, [lab.topics.events], EVENTS_KEPT)
    again = command(environment, "erase", run_id, "--receipt", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["gone_by_ms"] > receipt["erased_at_ms"]

    def gone() -> bool:
        s3.vacuum()
        # Some words of other runs, so that it is no standing cluster that forgets.
        lab.send_raw(partition_for(run_id, PARTITIONS), b"k", b"garbage")
        lab.flush()
        return not any(in_files(tmp_path / place, raw) for place in ("kafka", "data", "s3"))

    wait_for("every byte to be gone", gone, LIMIT_S, 0.5)
    assert not in_archive(settings, raw), "what came late is archived without its content"
    assert not any(in_files(tmp_path / place, run_id.encode()) for place in ("kafka", "s3"))
    others_are_whole(environment, client)
    assert engine.term() == 0


def told_late(environment: dict[str, str], run_id: str) -> int:
    shown = command(environment, "erase", run_id, "--receipt", "--json")
    return int(json.loads(shown.stdout)["late"])


def lab_topics(lab: Lab) -> list[str]:
    client = AdminClient({"bootstrap.servers": lab.bootstrap})
    return list(client.list_topics(timeout=30).topics)


def others_are_whole(environment: dict[str, str], client: Client) -> None:
    """Everything else is as it was, though the log is cut and the archive rewritten."""
    for number in range(OTHERS):
        view = client.query(f"run-{number}", timeout="60s")
        assert view.flow == "order"
    audited = command(environment, "audit", "run-0", "--json")
    assert audited.returncode == 0, audited.stderr
    assert json.loads(audited.stdout)["differences"] == []
    assert command(environment, "archive", "verify").returncode == 0
