"""`dalsegno dev` ends all that it has begun, whatever one part of it says."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.ops.dev.supervise import take_down


class Part:
    """A server, or a child."""

    def __init__(self, name: str, said: list[str], *, fails: bool = False) -> None:
        self._name = name
        self._said = said
        self._fails = fails

    def stop(self) -> None:
        self._said.append(f"{self._name} ended")
        if self._fails:
            raise RuntimeError(f"{self._name} does not end")

    join = stop

    def terminate(self) -> None:
        self._said.append(f"{self._name} asked")


def test_what_does_not_end_keeps_nothing_else_up() -> None:
    said: list[str] = []
    servers: list[Any] = [Part("kafka", said), Part("s3", said, fails=True)]
    children: list[Any] = [Part("engine", said, fails=True), Part("worker", said, fails=True)]

    def gone(_line: str) -> None:
        raise OSError("the terminal is gone")

    with pytest.raises(RuntimeError, match="does not end"):
        take_down(servers, children, gone)
    assert said == [
        "worker asked",
        "engine asked",
        "worker ended",
        "engine ended",
        "s3 ended",
        "kafka ended",
    ]
