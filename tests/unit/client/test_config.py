"""Where a client finds its broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.client import ClientConfig, SettingsError
from dalsegno.ops.dev.env import DATA_FOLDER, write_env


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and no settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DALSEGNO_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("DALSEGNO_PREFIX", raising=False)
    return tmp_path


def dev(folder: Path, **values: str) -> None:
    """What `dalsegno dev` leaves."""
    (folder / DATA_FOLDER).mkdir()
    write_env(folder / DATA_FOLDER, {f"DALSEGNO_{name}": each for name, each in values.items()})


def test_without_any_broker_the_error_says_how_to_name_one() -> None:
    with pytest.raises(SettingsError, match=r"DALSEGNO_BOOTSTRAP_SERVERS.*dalsegno dev"):
        ClientConfig.resolve()


def test_a_running_dev_in_this_folder_is_found(folder: Path) -> None:
    dev(folder, BOOTSTRAP_SERVERS="127.0.0.1:4711", PREFIX="mine")
    config = ClientConfig.resolve()
    assert (config.bootstrap_servers, config.prefix) == ("127.0.0.1:4711", "mine")


def test_arguments_and_the_environment_come_before_dev(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dev(folder, BOOTSTRAP_SERVERS="127.0.0.1:4711", PREFIX="mine")
    assert ClientConfig.resolve("broker:1").prefix == "dalsegno"
    monkeypatch.setenv("DALSEGNO_BOOTSTRAP_SERVERS", "broker:2")
    config = ClientConfig.resolve()
    assert (config.bootstrap_servers, config.prefix) == ("broker:2", "dalsegno")
