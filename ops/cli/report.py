"""`dalsegno report`: the four signals of a flow, and what its troubled runs were missing."""

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import NotFound
from dalsegno.ops.cli.render import print_json, print_table, progress_bar, when
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.streams.core.signals.figures import FlowReport


def report(
    flow: Annotated[str, typer.Option(help="Only this flow; otherwise every one")] = "",
    last: Annotated[int, typer.Option(min=0, help="So many troubled runs")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Print time to recovery, rework, state conflicts, clarity of escalations, and a triage.

    Needs no engine: every figure follows from the log alone.
    """
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.report_screen import document
    from dalsegno.ops.reporting import report_flows

    settings = read_settings()
    topic = settings.topics.events
    with Reader(settings) as reader, progress_bar() as bar:
        bounds = [reader.bounds(topic, number) for number in range(reader.partitions(topic))]
        task = bar.add_task("folding the log", total=sum(end - start for start, end in bounds))
        found = report_flows(settings, reader, last, lambda n: bar.advance(task, n))
    if flow:
        found = [each for each in found if each.flow == flow]
        if not found:
            raise NotFound(f"the log has no run of flow {flow}: see `dalsegno runs`")
    if json:
        print_json([document(each) for each in found])
        return
    if not found:
        print("no runs")
    for each in found:
        _show(each)


def _show(each: "FlowReport") -> None:
    from dalsegno.ops.report_screen import missing_rows, signal_rows, trouble_row

    states = ", ".join(f"{count} {state or 'refused'}" for state, count in each.states.items())
    print(f"{each.flow}: {each.runs} runs ({states})\n")
    print_table(("signal", "value", "of"), signal_rows(each), "")
    print(f"\n{each.troubled_runs} runs were in trouble; the last {len(each.troubled)} of them:")
    if not each.troubled:
        print()
        return
    print_table(("missing first", "runs", "what to do"), missing_rows(each), "")
    print()
    columns = ("run", "state", "missing", "why", "then", "last trouble")
    rows = ((*trouble_row(run), when(run.last_ms)) for run in each.troubled)
    print_table(columns, rows, "")
    print()
