"""The embedded broker on real Java: durable, never orphaned, alone on its data."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from dalsegno.ops.embedded import (
    DataInUseError,
    EmbeddedKafka,
    EmbeddedKafkaError,
    PortTakenError,
    StartFailedError,
)
from dalsegno.ops.guard import command_of

pytestmark = pytest.mark.kafka

# A process that owns a broker and says so; it is killed by the tests.
OWNER = """
import sys
from dalsegno.ops.embedded import EmbeddedKafka
kafka = EmbeddedKafka(sys.argv[1]).start()
print(kafka.pid, kafka.port, flush=True)
sys.stdin.read()
"""


def until(met: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not met():
        assert time.monotonic() < end, "not within the limit"
        time.sleep(0.02)


def append(kafka: EmbeddedKafka, value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    producer.produce("facts", value, on_delivery=lambda e, _: e and failures.append(e))
    assert producer.flush(30) == 0
    assert not failures


def read(kafka: EmbeddedKafka, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition("facts", 0, 0)])
    try:
        return [m.value() or b"" for m in consumer.consume(count, 30) if m.error() is None]
    finally:
        consumer.close()


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[EmbeddedKafka]:
    broker = EmbeddedKafka(tmp_path / "data")
    with broker:
        broker.create_topic("facts")
        yield broker


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pid, port = map(int, process.stdout.readline().split())
    yield process, pid, port
    process.kill()
    process.communicate()
    until(lambda: not command_of(pid))


def test_a_killed_broker_comes_back_with_its_port_and_its_data(own_kafka: EmbeddedKafka) -> None:
    append(own_kafka, b"before")
    port, pid = own_kafka.port, own_kafka.pid
    own_kafka.kill()
    assert not own_kafka.alive
    own_kafka.start()
    assert own_kafka.port == port
    assert own_kafka.pid != pid
    append(own_kafka, b"after")
    assert read(own_kafka, 2) == [b"before", b"after"]


def test_a_stopped_folder_gets_its_port_and_data_again(own_kafka: EmbeddedKafka) -> None:
    append(own_kafka, b"kept")
    port = own_kafka.port
    own_kafka.stop()
    with EmbeddedKafka(own_kafka.data) as again:
        assert again.port == port
        assert read(again, 1) == [b"kept"]


def test_two_brokers_side_by_side_do_not_meet(
    own_kafka: EmbeddedKafka, kafka: EmbeddedKafka
) -> None:
    assert own_kafka.port != kafka.port
    append(own_kafka, b"mine")
    own_kafka.kill()
    assert kafka.alive
    own_kafka.start()
    assert read(own_kafka, 1) == [b"mine"]


def test_java_ends_when_its_owner_is_killed(
    owner: tuple[subprocess.Popen[str], int, int], tmp_path: Path
) -> None:
    process, pid, port = owner
    assert "kafka.Kafka" in command_of(pid)
    process.kill()
    until(lambda: not command_of(pid))
    with EmbeddedKafka(tmp_path / "data") as again:  # at once: the kernel dropped the claim
        assert again.port == port


def test_java_ends_even_when_it_is_stopped_while_its_owner_dies(
    owner: tuple[subprocess.Popen[str], int, int],
) -> None:
    process, pid, _ = owner
    os.kill(pid, signal.SIGSTOP)  # ignores TERM now: the guard must go on to KILL
    process.kill()
    until(lambda: not command_of(pid))


def test_a_live_owner_keeps_its_data(
    owner: tuple[subprocess.Popen[str], int, int], tmp_path: Path
) -> None:
    _, pid, _ = owner
    with pytest.raises(DataInUseError, match="is in use by") as refused:
        EmbeddedKafka(tmp_path / "data").start()
    assert refused.value.pid == pid
    assert "kafka.Kafka" in command_of(pid)


def test_a_taken_port_is_refused(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with pytest.raises(PortTakenError, match=str(kafka.port)):
        EmbeddedKafka(tmp_path, port=kafka.port).start()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(StartFailedError, match=r"log\.retention\.ms"):
        EmbeddedKafka(tmp_path, config={"log.retention.ms": "no number"}).start()


def test_nothing_is_known_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedKafkaError, match="call start"):
        _ = EmbeddedKafka(tmp_path).bootstrap


def test_it_is_quiet_and_small(kafka: EmbeddedKafka) -> None:
    status = Path(f"/proc/{kafka.pid}/status")
    if not status.exists():
        pytest.skip("no /proc on this system")
    rss_kb = next(int(s.split()[1]) for s in status.read_text().splitlines() if "VmRSS" in s)
    assert rss_kb < 400_000
    assert kafka.log.read_text().count("\n") < 60
