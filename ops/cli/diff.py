"""`dalsegno diff`: what changed in a run's context between two of its run versions."""

from typing import Annotated

import typer

from dalsegno.ops.cli.failures import NotFound
from dalsegno.ops.cli.render import print_json
from dalsegno.ops.cli.whole_fold import whole_fold


def diff(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id")],
    first: Annotated[int, typer.Argument(metavar="V1", min=0, help="Run version; 0: the start")],
    last: Annotated[int, typer.Argument(metavar="V2", min=0, help="Run version")],
    archive_only: Annotated[
        bool, typer.Option("--archive-only", help="Needs no Kafka: the bucket alone")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Print what turns the context of one run version into that of another, secrets masked.

    Both come from a fold of the log, and of the archive where there is one. Version 0 is the empty
    context before the start.
    """
    from dalsegno.ops.comparing import NoSuchVersion, of_versions
    from dalsegno.ops.following import follow, held_context
    from dalsegno.ops.replaying import lines_of
    from dalsegno.schemas import values
    from dalsegno.schemas.partitioner import partition_for

    with whole_fold(archive_only=archive_only) as fold:
        number = partition_for(run_id, fold.count)
        runs = follow(fold.partition(number), lambda run: run.id == run_id)
        seen = map(held_context, runs)
        try:
            found = of_versions(seen, run_id, first, last)
        except NoSuchVersion as error:
            raise NotFound(str(error)) from error
    if json:
        print_json(
            {
                "run_id": run_id,
                "before": first,
                "after": last,
                "diff": values.unpack(found.diff) if found.diff else {},
                "schema_versions": {
                    name: {"before": before, "after": after} for name, before, after in found.moved
                },
            }
        )
        return
    for line in lines_of(found.diff):
        print(line)
    for name, before, after in found.moved:
        print(f"{name}: schema version {before or '-'} -> {after or '-'}")
    if not found.diff and not found.moved:
        print(f"the context of run {run_id} is the same at {first} and at {last}")
