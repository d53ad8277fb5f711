"""What `dalsegno doctor` says of the stores beside Kafka, and of brokers that refuse."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from dalsegno.ops import checkup
from dalsegno.ops.checkup import Health, TopicFault, service_checks, store_checks
from dalsegno.ops.kafka.reader import Reader, ReadError
from dalsegno.ops.remedies import BROKERS_REMEDY
from dalsegno.streams.client.refused import BrokerRefused, Cause
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.settings import EngineSettings


def test_a_data_folder_that_cannot_be_one_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (found,) = store_checks(EngineSettings(data_dir=str(tmp_path / "file" / "data")))
    assert (found.subject, found.health) == ("data folder", Health.FAULT)
    assert "DALSEGNO_DATA_DIR" in found.remedy


def test_a_data_folder_that_an_engine_will_make_is_well(tmp_path: Path) -> None:
    (found,) = store_checks(EngineSettings(data_dir=str(tmp_path / "not" / "yet")))
    assert found.subject == "data folder"
    assert found.health is not Health.FAULT
    assert not (tmp_path / "not").exists(), "a look makes nothing"


def test_an_archive_that_does_not_answer_is_a_fault() -> None:
    archive = ArchiveSettings(
        bucket="b", endpoint="http://127.0.0.1:9", region="r", access_key_id="kid",
        secret_access_key="hush", attempts=1, connect_timeout_ms=200,
    )  # fmt: skip
    (found,) = store_checks(EngineSettings(archive=archive))
    assert (found.subject, found.health) == ("archive", Health.FAULT)
    assert "unreachable" in found.detail
    assert "hush" not in found.detail


def test_nothing_is_said_of_stores_that_are_not_used() -> None:
    assert list(store_checks(EngineSettings())) == []


KEYS = "k1:" + "00" * 32 + ",k2:" + "01" * 32
REFUSED = "does not let the user do this"


@pytest.mark.parametrize(
    ("error", "detail", "remedy"),
    [
        (BrokerRefused(Cause.RIGHTS, "", "t"), REFUSED, "mend what it says"),
        (
            KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
            REFUSED,
            "mend what it says",
        ),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), "no Kafka answers", BROKERS_REMEDY),
        (TimeoutError(), "no Kafka answers in time", BROKERS_REMEDY),
        (ReadError("there is no topic t: x"), "no topic", "dalsegno topics create"),
        (ReadError(f"no Kafka at b; {BROKERS_REMEDY}"), "no Kafka at b", BROKERS_REMEDY),
    ],
)
@pytest.mark.parametrize("where", ["events", "topics", "engines"])
def test_what_kafka_refuses_is_a_finding_wherever_it_comes(
    where: str, error: Exception, detail: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def partitions(_reader: Reader, _topic: str) -> int:
        if where == "events":
            raise error
        return 1

    def faults(_settings: EngineSettings) -> list[TopicFault]:
        if where == "topics":
            raise error
        return []

    def claims(_settings: EngineSettings) -> dict[int, object]:
        raise error

    monkeypatch.setattr(Reader, "partitions", partitions)
    monkeypatch.setattr(checkup, "claims", claims)
    settings = EngineSettings(bootstrap_servers="127.0.0.1:1", mac_keys=KEYS)
    *_, last = service_checks(settings, faults)
    assert last.health is Health.FAULT
    assert detail in last.detail
    assert BROKERS_REMEDY not in last.detail
    assert "KafkaError{" not in last.detail
    assert last.remedy.startswith(remedy)


def test_which_key_signs_is_not_claimed_without_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "partitions", lambda *_: 0)
    monkeypatch.setattr(checkup, "claims", lambda _: {})
    settings = EngineSettings(bootstrap_servers="127.0.0.1:1", mac_keys=KEYS)
    found = next(iter(service_checks(settings, lambda _: [])))
    assert found.subject == "mac key"
    assert "k1 signs" not in found.detail
