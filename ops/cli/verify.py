"""`dalsegno verify`: is what the engines saved the fold of the log?"""

from typing import Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import print_json, print_table, progress_bar
from dalsegno.ops.cli.settings import read_settings

_SHOWN = 20


def verify(
    partition: Annotated[list[int] | None, typer.Option(help="Only this one (repeatable)")] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Fold every partition's log and compare with the tables. Exit code 1 on a difference."""
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.streams.core.partition import Partition
    from dalsegno.streams.engine.verify import verify as compare

    settings = read_settings()
    with Reader(settings) as reader:
        count = reader.partitions(settings.topics.events)
        for number in range(count):  # so that what follows does not meet a leader on the move
            reader.bounds(settings.topics.events, number)
            reader.bounds(settings.topics.runs_changelog, number)
    only = tuple(partition or range(count))
    reports = []
    with progress_bar() as bar:
        task = bar.add_task("folding partitions", total=len(only))
        for report in compare(settings, Partition, count, only):
            reports.append(report)
            bar.advance(task)
    fields = ("partition", "position", "events", "parts", "waiting", "counts", "differences")
    if json:
        print_json([{name: getattr(each, name) for name in fields} for each in reports])
    else:
        print_table(
            ("partition", "position", "events", "parts", "result"),
            (
                (
                    each.partition,
                    each.position,
                    each.events,
                    each.parts,
                    "equal" if each.right else f"{len(each.differences)} differences",
                )
                for each in reports
            ),
            "no partitions",
        )
        for each in reports:
            for line in each.differences[:_SHOWN]:
                print(f"partition {each.partition}: {line}")
            if len(each.differences) > _SHOWN:
                print(f"partition {each.partition}: and more (--json lists all)")
    if not all(each.right for each in reports):
        raise typer.Exit(ExitCode.FOUND)
