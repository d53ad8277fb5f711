"""A stop ends within its bound, whatever the process is at when it is told, or at its end."""

from __future__ import annotations

import subprocess
import sys

HEAD = """
import asyncio, ctypes
from dalsegno.streams.engine.stopping import StopSignals
"""
HOLDS_THE_INTERPRETER = """
async def main():
    StopSignals(0.1).arm()
    ctypes.PyDLL(None).pause()  # as a database does whose disk does not answer
asyncio.run(main())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HEAD + program],
        timeout=60, check=False, capture_output=True, text=True,
    )  # fmt: skip


def test_it_ends_although_something_holds_the_interpreter() -> None:
    ended = run(HOLDS_THE_INTERPRETER)
    assert ended.returncode == 1
    assert "most recent call first" in ended.stderr
