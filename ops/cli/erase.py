"""`dalsegno erase`: a run leaves every store; the receipt says from where, and by when."""

from __future__ import annotations

import getpass
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode, NotFound, Unavailable, UsageFault
from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.ops.erasing import Place, Receipt
    from dalsegno.streams.engine.forgetting import Forgets
    from dalsegno.streams.engine.log_ages import Looked
    from dalsegno.streams.engine.settings import EngineSettings


def erase(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id")],
    *,
    reason: Annotated[str, typer.Option(help="Why: it is kept, so name nobody in it")] = "",
    by: Annotated[str, typer.Option(help="Who asks; default: your user name")] = "",
    receipt: Annotated[bool, typer.Option("--receipt", help="Only show the receipt again")] = False,
    wait_s: Annotated[float, typer.Option(help="How long to wait for the stores")] = 60.0,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask")] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> int:
    """Erase a run, whatever its state, from every store. There is no way back.

    Exit code 1 while a store has not confirmed, or some topic never forgets.
    """
    from dalsegno.ops.erasing import await_receipt
    from dalsegno.ops.kafka.engines import EngineError

    settings = read_settings()
    place = _place(settings, run_id)
    looked = _looked(settings)
    if not receipt:
        if not reason.strip():
            raise UsageFault("say why: --reason TEXT is kept with the receipt")
        _warn(settings, looked, quiet=json)
        if not yes and not typer.confirm(f"erase run {run_id} for good?"):
            return ExitCode.OK
        _request(settings, place, run_id, reason, by or getpass.getuser())
    try:
        found = await_receipt(settings, place, run_id, looked, 0.0 if receipt else wait_s)
    except EngineError as error:
        raise Unavailable(f"{error} (then: `dalsegno erase RUN --receipt`)") from error
    if found is None:
        if receipt:
            raise NotFound("no run of this id was erased")
        raise Unavailable("requested, and not read yet: `dalsegno erase RUN --receipt` shows it")
    _show(found, json=json)
    return ExitCode.OK if found.confirmed and found.gone_by_ms is not None else ExitCode.FOUND


def _place(settings: EngineSettings, run_id: str) -> Place:
    from dalsegno.ops.erasing import Place
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.schemas.partitioner import partition_for
    from dalsegno.streams.core.names import name_fault

    if fault := name_fault(run_id):
        raise UsageFault(f"no run has this id: it {fault}")
    with Reader(settings) as reader:
        count = reader.partitions(settings.topics.events)
    return Place(partition_for(run_id, count), count)


def _looked(settings: EngineSettings) -> Looked:
    from dalsegno.streams.engine.log_ages import look

    return look(settings)


def _warn(settings: EngineSettings, looked: Looked, *, quiet: bool) -> None:
    from dalsegno.ops.erasing import undated

    if not quiet:
        _never(undated(settings, looked))


def _never(logs: Iterable[Forgets]) -> None:
    for each in logs:
        if each.by_ms is None:
            print(f"{each.topic} never forgets: {each.remedy}")


def _request(settings: EngineSettings, place: Place, run_id: str, reason: str, by: str) -> None:
    from dalsegno.ops.erasing import request
    from dalsegno.ops.kafka.writer import AppendError
    from dalsegno.schemas.control import ErasureRequested

    event = ErasureRequested(
        source="cli",
        run_id=run_id,
        erasure_id=secrets.token_hex(8),
        reason=reason.strip(),
        requested_by=by,
    )
    try:
        request(settings, place, event)
    except AppendError as error:
        raise Unavailable(f"{error}") from error


def _show(found: Receipt, *, json: bool) -> None:
    if json:
        print_json(found)
        return
    state = found.was or "nothing was known of it"
    print(f"erasure {found.erasure_id} of run {found.run_digest}")
    print(f"by {found.requested_by}, {when(found.erased_at_ms)}: {found.reason} (it was: {state})")
    if found.late:
        print(f"{found.late} records about it came later and were refused")
    print()
    rows = ((store, removed or "-", detail) for store, removed, detail in found.removed)
    print_table(("removed now", "records", "what"), rows, "no store has confirmed yet")
    print()
    dates = (
        (each.topic, "never" if each.by_ms is None else when(each.by_ms)) for each in found.logs
    )
    print_table(("Kafka's log", "gone by"), dates, "no topics")
    if found.gone_by_ms is None:
        _never(found.logs)
        print("so there is no date by which all of it is gone")
    else:
        print(f"gone from Kafka by {when(found.gone_by_ms)}")
