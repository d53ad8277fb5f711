"""`dalsegno verify`: is what the engines saved the fold of the log?"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import print_json, print_table, progress_bar
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.streams.engine.verify import PartitionReport

_SHOWN = 20
_FIELDS = (
    "log", "partition", "position", "events", "parts", "waiting", "counts", "begins_at",
    "differences",
)  # fmt: skip


def verify(
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this one; may be repeated")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Fold every partition's logs, of events and of fault points, and compare with the tables.

    Exit code 1 on a difference.
    """
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.streams.core.partition import Partition
    from dalsegno.streams.engine.verify import verify as compare
    from dalsegno.streams.engine.verify_faults import verify_faults

    settings = read_settings()
    with Reader(settings) as reader:
        count = reader.partitions(settings.topics.events)
        for number in range(count):  # so that what follows does not meet a leader on the move
            reader.bounds(settings.topics.events, number)
            reader.bounds(settings.topics.runs_changelog, number)
            reader.bounds(settings.topics.faults, number)
            reader.bounds(settings.topics.faults_changelog, number)
    only = tuple(partition or range(count))
    reports: list[PartitionReport] = []
    found = chain(compare(settings, Partition, count, only), verify_faults(settings, count, only))
    with progress_bar() as bar:
        task = bar.add_task("folding partitions", total=2 * len(only))
        for report in found:
            reports.append(report)
            bar.advance(task)
    if json:
        print_json([{name: getattr(each, name) for name in _FIELDS} for each in reports])
    else:
        print_table(
            ("log", "partition", "position", "events", "parts", "result"),
            (
                (each.log, each.partition, each.position, each.events, each.parts, _result(each))
                for each in reports
            ),
            "no partitions",
        )
        for each in reports:
            for line in each.differences[:_SHOWN]:
                print(f"{each.log} partition {each.partition}: {line}")
            if len(each.differences) > _SHOWN:
                print(f"{each.log} partition {each.partition}: and more (--json lists all)")
    if not all(each.right for each in reports):
        raise typer.Exit(ExitCode.FOUND)


def _result(report: PartitionReport) -> str:
    if report.begins_at:
        return f"not compared: the log begins at {report.begins_at}"
    return "equal" if report.right else f"{len(report.differences)} differences"
