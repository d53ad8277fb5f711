"""Tables of commands: what is listed can be taken up by another command as it stands."""

import sys

import pytest

from dalsegno.ops.cli.render import print_table

NAME = "dalsegno/segments/00012/e-00000000000000000000-00000000000000012345-" + "ab" * 32
TEXT = "a detail that is longer than a line of a terminal has room for, " * 3


def test_a_table_that_is_not_for_a_terminal_has_a_line_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dalsegno archive list | grep …` finds whole names."""
    monkeypatch.setenv("COLUMNS", "80")
    print_table(("name", "detail"), [(NAME, TEXT), ("short", "x")], "")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].split("  ")[0] == NAME
    assert lines[1].rstrip().endswith(TEXT.rstrip())


def test_on_a_terminal_a_name_is_whole_and_the_rest_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_table(("name", "detail"), [(NAME, TEXT)], "")
    lines = capsys.readouterr().out.splitlines()
    assert NAME in lines[1]
    assert len(lines) > 2
