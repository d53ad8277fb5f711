"""A stop ends within its bound, whatever the process is at when it is told, or at its end."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from dalsegno.streams.engine import stopping
from dalsegno.streams.engine.stopping import StopAskedError, unless

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


async def test_what_a_stop_does_not_cut_short_is_returned_and_raised() -> None:
    async def answer() -> int:
        return 7

    async def fault() -> int:
        raise LookupError

    assert await unless(asyncio.Event(), answer()) == 7
    with pytest.raises(LookupError):
        await unless(asyncio.Event(), fault())


async def test_what_a_stop_cuts_short_is_given_up_and_has_ended() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        try:
            asked.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(StopAskedError):
        await unless(asked, waits())
    assert ended.is_set()


async def test_what_does_not_let_itself_be_given_up_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stopping, "_GIVE_UP_S", 0.01)
    asked, end = asyncio.Event(), asyncio.Event()

    async def stays() -> None:
        asked.set()
        try:
            await end.wait()
        finally:
            await end.wait()

    with pytest.raises(StopAskedError):
        await unless(asked, stays())
    assert "has not ended" in capsys.readouterr().out
    end.set()
