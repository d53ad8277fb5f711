"""`dalsegno replay`: the history of a run, folded from the log."""

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import NotFound
from dalsegno.ops.cli.render import plain, print_json, progress_bar, when
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.schemas.outputs import Transition


def replay(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="Run id")],
    to: Annotated[int, typer.Option(min=-1, help="Stop at this run version; -1: never")] = -1,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Fold the log of the run's partition; print each transition with its context diff.

    Needs no engine: what it prints follows from the log alone.
    """
    from dalsegno.ops.folding import fold_log
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.replaying import transitions_of
    from dalsegno.schemas.partitioner import partition_for

    settings = read_settings()
    with Reader(settings) as reader, progress_bar() as bar:
        count = reader.partitions(settings.topics.events)
        number = partition_for(run_id, count)
        start, end = reader.bounds(settings.topics.events, number)
        task = bar.add_task(f"folding partition {number}", total=end - start)
        folded = fold_log(settings, reader, number, count, lambda n: bar.advance(task, n))
        found = list(transitions_of(folded, run_id, None if to < 0 else to))
    if not found:
        raise NotFound(f"the log has no run {run_id}: see `dalsegno runs`")
    if json:
        print_json([transition_document(each) for each in found])
        return
    print_transitions(found)


def print_transitions(found: "list[Transition]") -> None:
    """Each transition with its steps and its context diff."""
    from dalsegno.ops.replaying import diff_lines

    for each in found:
        print(_headline(each))
        for change in each.changes:
            epoch = f" (epoch {change.epoch})" if change.epoch else ""
            print(f"    {change.step}: {change.before.value} -> {change.after.value}{epoch}")
        for line in diff_lines(each):
            print(f"    {line}")


def _headline(each: "Transition") -> str:
    step = f" {each.step}" if each.step else ""
    state = each.run_state_after.value if each.run_state_after else "-"
    why = f": {each.reason}" if each.reason else ""
    return (
        f"{each.cause_offset:>8}  {when(each.at_ms)}  v{each.run_version_before} -> "
        f"v{each.run_version_after}  {state}  {each.cause}{step}  {each.outcome.value}{why}"
    )


def transition_document(each: "Transition") -> object:
    """A transition, for JSON."""
    from dalsegno.schemas import values

    fields = plain(each)
    assert isinstance(fields, dict)
    return {**fields, "diff": values.unpack(each.diff) if each.diff else {}}
