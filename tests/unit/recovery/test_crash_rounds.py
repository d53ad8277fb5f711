"""The rounds of the crash workload: what ends them, their order, and how figures are told."""

import re
from pathlib import Path
from typing import NoReturn

import pytest
from benchmarks import crash_recovery
from benchmarks.crash_lab import body
from benchmarks.crash_lab.ours import Dalsegno
from benchmarks.crash_lab.restate import Restate
from benchmarks.crash_recovery import cell, heading, rotated, wait_half


class NeverUp(Dalsegno):
    """A start that fails; whether it was ended."""

    ended: Path | None = None

    def up(self, folder: Path, sleep_s: float) -> NoReturn:
        self.folder = folder
        raise OSError("no port")

    def down(self) -> None:
        super().down()
        self.ended = self.folder


def test_a_system_that_does_not_come_up_goes_down_and_its_folder_goes() -> None:
    system = NeverUp()
    with pytest.raises(OSError, match="no port"):
        crash_recovery._round(system, 0.0, lambda *_: {})
    assert system.ended is not None
    assert not system.ended.exists()


def test_systems_that_never_were_up_go_down() -> None:
    Dalsegno().down()
    Restate(Path("server"), Path("python")).down()


def test_the_wait_for_half_of_the_effects_ends(tmp_path: Path) -> None:
    body.prepare(tmp_path)
    with pytest.raises(TimeoutError, match="0 effects of 500"):
        wait_half(tmp_path, 0.0)


def test_every_system_comes_first_in_its_turn() -> None:
    orders = [rotated(["a", "b", "c"], number) for number in range(4)]
    assert ["".join(order) for order in orders] == ["abc", "bca", "cab", "abc"]


def test_a_cell_has_the_median_and_what_it_lies_between() -> None:
    assert cell([]) == ""
    assert cell([1.5]) == "1.50"
    assert cell([3, 1, 2]) == "2.00 (1.00 to 3.00)"


def test_a_column_says_how_many_rounds_counted() -> None:
    assert heading("x", 3, 3) == "x"
    assert re.search("2 of 3", heading("x", 2, 3))
