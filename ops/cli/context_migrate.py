"""`dalsegno context migrate`: rehearse a flow's upcasters over the runs that there are."""

from typing import Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode, UsageFault
from dalsegno.ops.cli.render import print_json, print_table
from dalsegno.ops.cli.whole_fold import whole_fold


def migrate(
    flow: Annotated[str, typer.Argument(metavar="MODULE:FLOW", help="The flow as the code has it")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Needed: there is nothing but the rehearsal")
    ] = False,
    live_only: Annotated[bool, typer.Option("--live-only", help="Leave ended runs out")] = False,
    archive_only: Annotated[
        bool, typer.Option("--archive-only", help="Needs no Kafka: the bucket alone")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> int:
    """Take the context of every run of a flow through the code's upcasters; print what fails.

    Contexts come from a fold of the log, and of the archive where there is one. Nothing is
    written: a context is upcast when a step reads it. Exit code 1 when a field of a run fails.
    """
    from dalsegno.ops.flow_loader import load_flow
    from dalsegno.ops.migrating import Rehearsal

    loaded = load_flow(flow)
    if not dry_run:
        raise UsageFault("contexts are upcast when steps read them, never rewritten: say --dry-run")
    schema = loaded.schema
    if schema is None:
        raise UsageFault(f"flow {loaded.name!r} has no context_schema: nothing leads anywhere")
    rehearsal = Rehearsal(loaded.name, schema, live_only=live_only)
    with whole_fold(archive_only=archive_only) as fold:
        for number in range(fold.count):
            rehearsal.partition(fold.partition(number), fold.blobs_of(number))
    runs, fields, faults = rehearsal.runs, rehearsal.fields, rehearsal.faults
    if json:
        print_json(
            {
                "schema": schema.name,
                "version": schema.version,
                "runs": runs,
                "fields": fields,
                "faults": [each._asdict() for each in faults],
            }
        )
    else:
        print_table(
            ("run", "state", "field", "version", "code", "error", "detail"),
            faults,
            f"{runs} runs, {fields} fields: every one comes to version {schema.version}",
        )
    return ExitCode.FOUND if faults else ExitCode.OK
