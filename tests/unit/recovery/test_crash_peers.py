"""Which peers the crash workload is run beside, and what is said of those that are left out."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.crash_lab import installing, postgres
from benchmarks.crash_lab.installing import NotInstallable, python_with
from benchmarks.crash_lab.ours import Dalsegno
from benchmarks.crash_lab.peers import PEERS, Installed, Peer, install
from benchmarks.crash_lab.system import System
from benchmarks.crash_recovery import CASES, columns


def there() -> Callable[[], System]:
    return Dalsegno


def not_there() -> Callable[[], System]:
    raise NotInstallable("no such package")


def test_peers_that_install_are_taken_in_the_order_asked_and_others_told() -> None:
    table = {name: Peer(there) for name in ("a", "b", "c")} | {"absent": Peer(not_there)}
    told: list[str] = []
    assert list(dict(install(["c", "absent", "a"], told.append, table))) == ["c", "a"]
    assert told == ["without absent: no such package"]


def test_a_peer_is_left_out_of_a_case_that_it_cannot_do_with_the_reason() -> None:
    installed = {
        "no server": Installed(Peer(there, {"engine": "it has none"}), there()),
        "both": Installed(Peer(there), there()),
    }
    told: list[str] = []
    assert [name for name, *_ in columns("engine", installed, told.append)] == ["dalsegno", "both"]
    assert told == ["engine without no server: it has none"]
    assert len(list(columns("worker", installed, told.append))) == 3


def test_a_slow_peer_takes_fewer_runs_of_the_long_case_and_its_column_says_so() -> None:
    installed = {"slow": Installed(Peer(there, cpu_runs=100), there())}
    ours, slow = columns("cpu", installed, print)
    assert ours[0] == "dalsegno"
    assert slow[0] == "slow, 500 steps"
    assert slow[2].keywords == {"runs": 100}  # type: ignore[attr-defined]


def test_what_peers_are_left_out_of_are_cases() -> None:
    assert {case for peer in PEERS.values() for case in peer.left_out} <= set(CASES)


def test_an_install_that_broke_off_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "CACHE", tmp_path)
    commands: list[list[object]] = []

    def run(command: list[object], **_: object) -> None:
        commands.append(command)
        (tmp_path / "venvs" / "x").mkdir(parents=True, exist_ok=True)
        if "pip" in command and len(commands) == 2:
            raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(NotInstallable, match="x==1"):
        python_with("x", "x==1")
    python = python_with("x", "x==1")
    assert len(commands) == 4
    assert python_with("x", "x==1") == python
    assert len(commands) == 4
    python_with("x", "x==2")
    assert len(commands) == 6


def test_without_a_postgresql_the_reason_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_VERSIONS", tmp_path)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(NotInstallable, match="initdb"):
        postgres.programs()
    folder = tmp_path / "15" / "bin"
    folder.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (folder / name).touch()
    assert postgres.programs() == folder
