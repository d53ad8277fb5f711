"""A guarded child has the environment that it was given, and its pid is where it should be."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dalsegno.ops.guard import spawn_guarded
from dalsegno.ops.variables import unread

_PRINTS = "import os; print(*os.environ, f'pid={os.getpid()}', sep='\\n')"


def test_a_guarded_engine_is_told_of_no_variable_of_the_guard(tmp_path: Path) -> None:
    pid_file, output = tmp_path / "it's a.pid", tmp_path / "output"
    with output.open("wb") as log:
        guard = spawn_guarded(
            [sys.executable, "-c", _PRINTS], pid_file, log, {"PATH": os.environ["PATH"]}
        )
    assert guard.wait(60) == 0
    assert guard.stdin is not None
    guard.stdin.close()
    *names, pid = output.read_text().splitlines()
    assert "PATH" in names
    assert unread(dict.fromkeys(names, "")) == []
    assert pid == f"pid={pid_file.read_text().strip()}"
