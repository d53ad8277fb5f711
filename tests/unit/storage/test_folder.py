"""Folders of engines: held by the kernel, never by a file that stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dalsegno.storage.errors import StoreFullError
from dalsegno.storage.folder import ENGINES_MAX, EngineFolder

HOLD = """
import sys
from pathlib import Path
from dalsegno.storage.folder import EngineFolder
folder = EngineFolder.take(Path(sys.argv[1]))
print(folder.path.name, flush=True)
sys.stdin.read()
"""


def test_two_engines_with_one_data_folder_have_a_folder_each(tmp_path: Path) -> None:
    first = EngineFolder.take(tmp_path)
    second = EngineFolder.take(tmp_path)
    assert (first.path.name, second.path.name) == ("engine-0", "engine-1")
    first.release()
    again = EngineFolder.take(tmp_path)
    assert again.path.name == "engine-0"
    again.release()
    second.release()


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "engine-0\n"
        beside = EngineFolder.take(tmp_path)
        assert beside.path.name == "engine-1"
        other.kill()
    assert (tmp_path / "engine-0" / "lock").exists()
    taken = EngineFolder.take(tmp_path)
    assert taken.path.name == "engine-0"
    taken.release()
    beside.release()


def test_another_folder_replaces_what_a_partition_had(tmp_path: Path) -> None:
    folder = EngineFolder.take(tmp_path)
    first = folder.partition(3)
    (first / "data").write_bytes(b"1")
    assert folder.partition(3) == first
    second = folder.another(3)
    assert second != first
    assert not first.exists()
    assert folder.partition(3) == second
    assert folder.partition(4).name == "partition-4.0"
    folder.release()


def test_a_folder_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFullError, match="file"):
        EngineFolder.take(tmp_path / "file")
    held = [EngineFolder.take(tmp_path) for _ in range(ENGINES_MAX)]
    with pytest.raises(StoreFullError, match="all in use"):
        EngineFolder.take(tmp_path)
    for each in held:
        each.release()


def test_old_databases_of_partitions_that_are_not_in_use_are_removed(tmp_path: Path) -> None:
    folder = EngineFolder.take(tmp_path)
    for number in range(4):
        (folder.partition(number) / "data").write_bytes(b"1")
    for number, age_s in ((0, 100), (1, 100), (2, 0)):
        for path in (folder.partition(number) / "data", folder.partition(number)):
            os.utime(path, (1_000 - age_s, 1_000 - age_s))
    (folder.path / "partition-x.0").mkdir()
    assert folder.set_aside({1}, before_s=1_000) == [0]
    left = {path.name for path in folder.path.glob("partition-*")}
    assert left == {"partition-1.0", "partition-2.0", "partition-3.0", "partition-x.0"}
    anew = folder.partition(0)
    assert list(anew.iterdir()) == []
    folder.release()
    again = EngineFolder.take(tmp_path)
    again.remove_aside()
    assert {path.name for path in again.path.iterdir()} == {*left, anew.name, "lock"}
    again.release()


def test_an_old_database_that_cannot_be_removed_is_told_and_keeps_no_other(tmp_path: Path) -> None:
    folder = EngineFolder.take(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder.path / "partition-0.0").symlink_to(elsewhere)  # which `rmtree` does not remove
    newest_s = folder.partition(1).stat().st_mtime
    assert folder.set_aside(set(), before_s=newest_s + 1) == [0, 1]
    [left] = folder.remove_aside()
    assert left.is_symlink()
    folder.release()
