"""A person at a terminal: a key, what waits, and decisions, all through the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from examples.stage import Ran, Stage


class Package(NamedTuple):
    """What a person needs of an escalation package, as `escalations list --json` says it.

    `options`: the decisions that it offers.
    """

    name: str
    run_id: str
    step: str
    asked: str
    cause: str
    missing: tuple[str, ...]
    options: tuple[str, ...]


class Desk:
    """One person with one key. `allow`: the policy lists the key, so the person may decide."""

    def __init__(self, stage: Stage, holder: str, *, allow: bool = True) -> None:
        self._stage, self.holder = stage, holder
        self._key = stage.folder / f"{holder}.key.json"
        listed = ["--allow"] if allow else []
        stage.must("keys", "new", holder, "--out", str(self._key), *listed)

    def waiting(self, flow: str) -> list[Package]:
        """Open packages of a flow, oldest first."""
        return [_package(each) for each in json.loads(self._list(flow, "--json"))]

    def freeze(self, flow: str, folder: Path) -> dict[str, str]:
        """Lines of a frozen list, by package: `dalsegno escalations list --freeze`."""
        file = folder / "waiting.list"
        self._list(flow, "--freeze", str(file))
        lines = file.read_text().splitlines()
        return {json.loads(line)["escalation_id"]: line for line in lines}

    def _list(self, flow: str, *options: str) -> str:
        return self._stage.must("escalations", "list", "--flow", flow, *options)

    def show(self, package: str) -> str:
        """The package on one screen."""
        return self._stage.must("escalations", "show", package)

    def decide(self, decision: str, package: str, reason: str, **fields: object) -> Ran:
        """Decide about one package."""
        return self._decide(decision, reason, package, *_given(fields))

    def decide_all(self, decision: str, lines: Iterable[str], reason: str, **fields: object) -> Ran:
        """Decide about each package of a frozen list."""
        file = self._stage.folder / f"{decision}.list"
        file.write_text("".join(f"{line}\n" for line in lines))
        return self._decide(decision, reason, "--bulk", str(file), *_given(fields))

    def _decide(self, decision: str, reason: str, *rest: str) -> Ran:
        who = ["--reason", reason, "--key", str(self._key)]
        return self._stage.cli("escalations", "decide", decision, *rest, *who)


def _given(fields: dict[str, object]) -> list[str]:
    return [
        word for name, value in fields.items() for word in ("--set", f"{name}={json.dumps(value)}")
    ]


def _package(found: dict[str, object]) -> Package:
    options, missing = found["options"], found["missing_fields"]
    assert isinstance(options, list)
    assert isinstance(missing, list)
    return Package(
        name=str(found["escalation_id"]),
        run_id=str(found["run_id"]),
        step=str(found["step"]),
        asked=str(found["asked"]),
        cause=str(found["cause"]),
        missing=tuple(map(str, missing)),
        options=tuple(str(each["decision"]) for each in options if not each["why_not"]),
    )
