"""A producer in another language, by the contract alone: what it sends is taken and folded."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.client.fixtures import lab  # noqa: F401
from tests.integration.client.lab import PARTITIONS, Lab

from dalsegno.schemas.events import RunEvent
from dalsegno.schemas.intake import Intake
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.outputs import RunState
from dalsegno.schemas.partitioner import partition_for
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record

pytestmark = pytest.mark.kafka
EXAMPLE = Path(__file__).parents[3] / "examples" / "plain_producer"


@pytest.fixture(scope="session")
def modules() -> Path:
    """The example's libraries, installed once per machine outside the source tree."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node and npm are not on the PATH")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dalsegno" / "node"
    cache.mkdir(parents=True, exist_ok=True)
    wanted = (EXAMPLE / "package.json").read_bytes()
    kept = cache / "package.json"
    if not (cache / ".installed").exists() or kept.read_bytes() != wanted:
        kept.write_bytes(wanted)
        install = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--silent"],
            cwd=cache,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        if install.returncode:
            pytest.skip(f"npm cannot install the example's libraries: {install.stderr[-300:]}")
        (cache / ".installed").touch()
    return cache / "node_modules"


def report(lab: Lab, modules: Path, run_id: str) -> list[str]:  # noqa: F811
    result = subprocess.run(
        ["node", str(EXAMPLE / "report.js"), lab.bootstrap, lab.prefix, run_id],
        env={**os.environ, "NODE_PATH": str(modules), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("run_id", ["order-17", "Bestellung-äöü-42"])
def test_its_run_succeeds(lab: Lab, modules: Path, run_id: str) -> None:  # noqa: F811
    said = report(lab, modules, run_id)
    number = partition_for(run_id, PARTITIONS)
    assert [line.split()[2] for line in said] == [str(number)] * 6
    reader = Consumer({"bootstrap.servers": lab.bootstrap, "group.id": f"{lab.prefix}-plain"})
    reader.assign([TopicPartition(lab.topics.events, number, 0)])
    intake = Intake(lab.topics.events, PARTITIONS, Keyring({}))
    partition = Partition(number)
    for message in reader.consume(6, 20):
        event = intake.read(number, message.key(), message.value(), ())
        assert isinstance(event, RunEvent), event
        at_ms = message.timestamp()[1]
        partition.apply(Record(message.offset(), at_ms, message.key(), message.value(), event))
    reader.close()
    run = partition.run(run_id)
    assert run is not None
    assert run.state is RunState.SUCCEEDED
