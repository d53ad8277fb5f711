"""The public API as a user's strict type checker sees it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def errors_of(file: Path) -> dict[int, str]:
    """mypy's errors by line, under its strictest settings, from outside the project's own ones."""
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file=",
            "--python-version=3.11",
            "--no-error-summary",
            "--show-error-codes",
            "--follow-imports=silent",
            str(file),
        ],
        capture_output=True,
        text=True,
        cwd=HERE,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        check=False,
    )
    found = re.findall(rf"^{re.escape(file.name)}:(\d+): error: (.*)$", result.stdout, re.MULTILINE)
    assert found or result.returncode == 0, result.stdout + result.stderr
    return {int(line): text for line, text in found}


def test_a_user_of_everything_has_no_errors() -> None:
    assert errors_of(Path("accepted.py")) == {}


def test_what_must_be_refused_is_refused_and_nothing_else() -> None:
    lines = (HERE / "refused.py").read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# E")}
    assert set(errors_of(Path("refused.py"))) == expected
