"""`dalsegno verify`: is what the engines saved the fold of the log?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
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
    "compared", "archived_to", "erased", "detail", "differences",
)  # fmt: skip


def verify(
    partition: Annotated[
        list[int] | None, typer.Option(help="Only this one; may be repeated")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Fold every partition's logs, of events and of fault points, and compare with the tables.

    Events that have left Kafka come from the archive. Exit code 1 on a difference, 3 where events
    of a partition could not be compared.
    """
    reports = _reports(partition)
    if json:
        print_json([{name: getattr(each, name) for name in _FIELDS} for each in reports])
    else:
        _show(reports)
    if not all(each.right for each in reports):
        raise typer.Exit(ExitCode.FOUND)
    if any(each.log == "events" and not each.compared for each in reports):
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _reports(partitions: Sequence[int] | None) -> list[PartitionReport]:
    """Of these partitions, or of all."""
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.verifying import verify_events
    from dalsegno.streams.engine.verify_faults import verify_faults

    settings = read_settings()
    reports: list[PartitionReport] = []
    with ExitStack() as stack:
        reader = stack.enter_context(Reader(settings))
        count = reader.partitions(settings.topics.events)
        for number in range(count):  # so that what follows does not meet a leader on the move
            reader.bounds(settings.topics.events, number)
            reader.bounds(settings.topics.runs_changelog, number)
            reader.bounds(settings.topics.faults, number)
            reader.bounds(settings.topics.faults_changelog, number)
        only = tuple(partitions or range(count))
        found = chain(
            verify_events(settings, reader, count, only), verify_faults(settings, count, only)
        )
        bar = stack.enter_context(progress_bar())
        task = bar.add_task("folding partitions", total=2 * len(only))
        for report in found:
            reports.append(report)
            bar.advance(task)
    return reports


def _show(reports: Sequence[PartitionReport]) -> None:
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


def _result(report: PartitionReport) -> str:
    if not report.compared:
        return f"not compared: the log begins at {report.begins_at}; {report.detail}"
    if not report.parts:
        return "nothing is saved yet"
    said = "equal" if report.right else f"{len(report.differences)} differences"
    if report.compared == "archive":
        said += f"; events up to {report.archived_to} from the archive"
    if report.erased:
        said += f", {report.erased} of them erased: {report.detail}"
    return said
