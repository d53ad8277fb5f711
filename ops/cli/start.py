"""`dalsegno start`: start a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode, Unavailable, UsageFault
from dalsegno.ops.cli.render import print_json, tell
from dalsegno.ops.cli.settings import read_settings
from dalsegno.ops.remedies import BROKERS_REMEDY

if TYPE_CHECKING:
    from dalsegno.streams.client.errors import DeliveryFailed

_ANSWER = "5s"
_RESULT = (
    "run_id", "state", "run_version", "context", "context_omitted", "reason", "detail",
)  # fmt: skip


def start(
    flow: Annotated[str, typer.Argument(metavar="MODULE:FLOW", help="Flow to run")],
    *,
    source: Annotated[
        str, typer.Option("--input", help="A JSON object, a file of one, or - for standard input")
    ] = "{}",
    run_id: Annotated[str, typer.Option(help="Run id; without it a new one")] = "",
    wait: Annotated[str, typer.Option(help="Wait for the end at most so long (30s, 5m)")] = "",
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Start a run and print its id. With --wait, exit code 1 if it does not succeed.

    The same id with the same input is the same start, however often it is sent; with another
    input it is refused, exit code 4.
    """
    from dalsegno.ops.flow_loader import load_flow
    from dalsegno.ops.logs import silence_clients
    from dalsegno.streams.client.client import Client
    from dalsegno.streams.client.errors import DeliveryFailed, WaitTimeout
    from dalsegno.streams.client.refused import refused_delivery
    from dalsegno.streams.client.request_ids import new_run_id

    silence_clients()

    wanted, inputs = load_flow(flow), read_input(source)
    _check_duration(wait)
    settings = read_settings()
    with Client(
        bootstrap_servers=settings.bootstrap_servers, prefix=settings.prefix, name="cli"
    ) as client:
        # Chosen here: whoever must repeat the start can name the same run.
        started = run_id or new_run_id()
        try:
            client.start(wanted, inputs, run_id=started, timeout=None if wait else _ANSWER)
        except DeliveryFailed as error:
            if (refusal := refused_delivery(error)) is not None:
                raise refusal from error
            if not error.retriable:
                raise UsageFault(f"Kafka never takes this start as it is: {error}") from error
            raise Unavailable(not_reached(settings.bootstrap_servers, started, error)) from error
        except WaitTimeout:
            tell(unanswered(started))
        if not wait:
            print_json({"run_id": started}) if json else print(started)
            return
        result = client.wait(started, wait)
    if json:
        print_json({name: getattr(result, name) for name in _RESULT})
    else:
        print(f"{started}: {result.state.value}" + (f", {result.reason}" if result.reason else ""))
    if not result.succeeded:
        raise typer.Exit(ExitCode.FOUND)


def _check_duration(wait: str) -> None:
    """Raises UsageFault."""
    from dalsegno.streams.client.durations import to_ms

    try:
        to_ms(wait or 0, "--wait")
    except ValueError as error:
        raise UsageFault(str(error)) from error


def unanswered(run_id: str) -> str:
    """What to do when the log has a start and no engine has said by now what became of it."""
    return (
        f"Kafka has the start, and no engine has answered for {_ANSWER} yet: is `dalsegno engine` "
        f"up? `dalsegno show {run_id}` tells later"
    )


def not_reached(brokers: str, run_id: str, error: DeliveryFailed) -> str:
    """What to do when Kafka has not acknowledged a start: it may or may not be in the log."""
    return (
        f"no Kafka at {brokers}: {error.code}; {BROKERS_REMEDY}; then repeat with --run-id {run_id}"
    )


def read_input(source: str) -> dict[str, object]:
    """The first context of a run. Raises UsageFault when it is not a JSON object."""
    import msgspec

    try:
        if source == "-":
            text = sys.stdin.read()
        elif source.lstrip()[:1] in tuple('{["') or not source.strip():
            text = source
        else:
            text = Path(source).read_text()
        return msgspec.json.decode(text, type=dict[str, object])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise UsageFault(f"{source[:100]}: {said}; give a JSON object or a file of one") from error
