"""What `dalsegno doctor` says of the stores beside Kafka."""

from pathlib import Path

from dalsegno.ops.checkup import Health, store_checks
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
