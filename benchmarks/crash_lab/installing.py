"""How a peer comes to this machine: its packages, and the processes that have them.

A peer's worker is a module of this folder that runs in the peer's own environment. It may import
`benchmarks.crash_lab.body` and nothing of dalsegno.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dalsegno" / "peers"
_ROOT = Path(__file__).parents[2]


class NotInstallable(Exception):  # noqa: N818 - a reason to leave the peer out
    """The peer cannot be had on this machine; the text says why."""


def python_with(name: str, *packages: str) -> Path:
    """A Python with these (pinned) packages in an environment of their own, fetched once.

    Raises `NotInstallable`.
    """
    python = CACHE / "venvs" / name / "bin" / "python"
    installed, wanted = python.parents[1] / "installed.txt", "\n".join(packages)
    if installed.exists() and installed.read_text() == wanted:
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *packages]
        subprocess.run(command, check=True, capture_output=True)
        installed.write_text(wanted)
    except (subprocess.CalledProcessError, OSError) as error:
        raise NotInstallable(f"installing {' '.join(packages)} failed: {error}") from error
    return python


def worker_command(python: Path, module: str, *arguments: str) -> list[str]:
    """Runs a module of this folder: as one, so that no neighbour hides the peer's own package."""
    return [str(python), "-m", f"{__package__}.{module}", *arguments]


def worker_environment(folder: Path, sleep_s: float) -> dict[str, str]:
    """What the step body looks at."""
    return {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "CRASH_FOLDER": str(folder),
        "CRASH_SLEEP_S": str(sleep_s),
    }
