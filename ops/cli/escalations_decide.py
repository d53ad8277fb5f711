"""`dalsegno escalations decide`: answer one package, or a frozen list of them."""

from __future__ import annotations

import datetime as dt
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode, Refused, UsageFault
from dalsegno.ops.cli.render import print_json, print_table
from dalsegno.ops.cli.settings import read_settings
from dalsegno.schemas.control import DecisionType

if TYPE_CHECKING:
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.people.deciding import Round, Target
    from dalsegno.schemas.values import Value
    from dalsegno.streams.engine.settings import EngineSettings

_KEY_VARIABLE = "DALSEGNO_DECISION_KEY"


def decide(
    decision: Annotated[DecisionType, typer.Argument(metavar="DECISION", help="What is decided")],
    name: Annotated[str, typer.Argument(metavar="PACKAGE", help="The package, as listed")] = "",
    *,
    reason: Annotated[str, typer.Option(help="Why: it goes on record")] = "",
    fields: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=JSON", help="For supply, edit, skip")
    ] = None,
    bulk: Annotated[Path | None, typer.Option(help="A list of `escalations list --freeze`")] = None,
    digest: Annotated[str, typer.Option(help="The package must still have this digest")] = "",
    key: Annotated[Path | None, typer.Option(help=f"Your key [env: {_KEY_VARIABLE}]")] = None,
    wait_s: Annotated[float, typer.Option(help="How long to wait for the outcome")] = 30.0,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> int:
    """Sign a decision, append it, and say what became of it. The first one on a package counts."""
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.kafka.writer import Writer
    from dalsegno.ops.people.deciding import Decider, operations
    from dalsegno.ops.people.frozen import thaw
    from dalsegno.ops.people.keys import SigningKey

    if not reason.strip():
        raise UsageFault("say why: --reason TEXT goes on record with the decision")
    if bool(name) == (bulk is not None):
        raise UsageFault("name one package, or a list with --bulk FILE")
    path = key or Path(os.environ.get(_KEY_VARIABLE, ""))
    if not path.name:
        raise UsageFault(f"which key is yours? --key FILE or {_KEY_VARIABLE}")
    signing = SigningKey.read(path)
    ops = operations(_fields(fields or []))
    settings = read_settings()
    with Reader(settings) as reader:
        targets = [_open(reader, settings, name, digest)] if bulk is None else thaw(bulk)
        decider = Decider(settings, reader, Writer(settings), signing)
        bulk_id = "" if bulk is None else secrets.token_hex(8)
        done = decider.decide_all(
            targets, decision, reason, ops=ops, bulk_id=bulk_id, limit_s=wait_s
        )
    if bulk is not None:
        return _list(done, json=json)
    if done.failure is not None:
        raise done.failure
    (verdict,) = done.verdicts
    if not verdict.taken:
        raise Refused(f"{verdict.escalation_id}: {verdict.reason}: {verdict.detail}")
    if json:
        print_json([{"package": verdict.escalation_id, "outcome": "taken", "detail": ""}])
    else:
        print(f"{verdict.escalation_id}: taken")
    return ExitCode.OK


def _list(done: Round, *, json: bool) -> int:
    """Every line of the list with what became of it, however far it came."""
    rows = [
        *((v.escalation_id, "taken" if v.taken else v.reason, v.detail) for v in done.verdicts),
        *((t.escalation_id, "no outcome yet", "in the log") for t in done.unheard),
        *((t.escalation_id, "not sent", "") for t in done.unsent),
    ]
    names = ("package", "outcome", "detail")
    taken = sum(each.taken for each in done.verdicts)
    if json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
    else:
        print_table(names, rows, "the list is empty")
        print(f"{taken} of {len(rows)} taken")
    if done.failure is not None:
        raise done.failure
    return ExitCode.OK if taken == len(rows) else ExitCode.FOUND


def _open(reader: Reader, settings: EngineSettings, name: str, digest: str) -> Target:
    from dalsegno.ops.people.deciding import Target
    from dalsegno.ops.people.packages import Filter, find_open, read_open

    wanted = Filter(run=name.rpartition("#")[0])
    found = read_open(reader, settings, time.time_ns() // 1_000_000, wanted)
    target = Target.of(find_open(found, name))
    if digest and not target.package_digest.hex().startswith(digest):
        raise Refused(f"{name} is bound to {target.package_digest.hex()[:16]}, not {digest}")
    return target


def _fields(given: list[str]) -> dict[str, Value]:
    import msgspec

    fields: dict[str, Value] = {}
    for each in given:
        field, equals, text = each.partition("=")
        if not field or not equals:
            raise UsageFault(f"--set {each}: write FIELD=JSON")
        try:
            fields[field] = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            at = _time(text)
            if at is None:
                raise UsageFault(f"--set {field}: {error}; texts stand in quotes") from error
            fields[field] = at
    return fields


def _time(text: str) -> dt.datetime | None:
    """A time with its zone, which JSON has not: `2026-01-31T09:00:00Z`, without quotes."""
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if at.tzinfo is None else at.astimezone(dt.UTC)
