"""`dalsegno audit`: the whole history of a run, live or years old, from the archive."""

from typing import Annotated

import typer

from dalsegno.ops.cli.archive_open import archive_settings, told
from dalsegno.ops.cli.failures import ExitCode, NotFound
from dalsegno.ops.cli.render import print_json, progress_bar, when
from dalsegno.ops.cli.replay import print_transitions, transition_document


def audit(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id")],
    archive_only: Annotated[
        bool, typer.Option("--archive-only", help="Needs no Kafka: the bucket alone")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> int:
    """Fold the run's partition from archived events, and from Kafka behind them; verify it.

    What the fold says is compared with the transitions that were archived. Exit code 1 on a
    difference.
    """
    from contextlib import ExitStack

    from dalsegno.ops.archived import audit as look
    from dalsegno.ops.archived import open_archive
    from dalsegno.ops.kafka.reader import Reader

    settings = archive_settings()
    with told(), ExitStack() as stack:
        archive = stack.enter_context(open_archive(settings))
        reader = None if archive_only else stack.enter_context(Reader(settings))
        bar = stack.enter_context(progress_bar())
        task = bar.add_task("folding", total=None)
        found = look(settings, archive, run_id, reader, lambda n: bar.advance(task, n))
    if found.erased is not None:
        raise NotFound(
            f"the run was erased at {when(found.erased.erased_ms)}: nothing is kept of it"
        )
    if not found.transitions:
        raise NotFound(f"neither the archive nor the log has a run {run_id}")
    if json:
        print_json(
            {
                "transitions": [transition_document(each) for each in found.transitions],
                "archived": found.archived,
                "differences": found.differences,
                "log_from": found.log_from,
            }
        )
    else:
        print_transitions(found.transitions)
        rest = len(found.transitions) - found.archived
        print(f"{found.archived} transitions are as they were archived, {rest} are from the log")
        for line in found.differences:
            print(f"DIFFERS: {line}")
    return ExitCode.FOUND if found.differences else ExitCode.OK
