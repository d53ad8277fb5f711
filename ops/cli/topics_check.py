"""`dalsegno topics check`: is every topic as it has to be?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.ops.cli.failures import ExitCode
from dalsegno.ops.cli.render import print_json, print_table
from dalsegno.ops.cli.settings import read_settings

if TYPE_CHECKING:
    from dalsegno.streams.engine.settings import EngineSettings


def check(
    queue: Annotated[list[str] | None, typer.Option(help="This queue must exist too")] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Compare the topics with what they have to be. Exit code 1 on a fault."""
    settings = read_settings()
    found = [
        {"health": "warning" if mild else "fault", "detail": detail, "remedy": remedy}
        for detail, remedy, mild in topic_faults(settings, queue or [])
    ]
    if json:
        print_json(found)
    else:
        columns = ("health", "detail", "remedy")
        rows = ([row[c] for c in columns] for row in found)
        print_table(columns, rows, "all topics are as they should be")
    if any(row["health"] == "fault" for row in found):
        raise typer.Exit(ExitCode.FOUND)


def topic_faults(
    settings: EngineSettings, queues: list[str] | None = None
) -> list[tuple[str, str, bool]]:
    """What is wrong, what mends it, whether it is only a warning. Raises KafkaException."""
    from dalsegno.streams.engine.checks import check as compare
    from dalsegno.streams.engine.topics_admin import TopicAdmin

    facts = TopicAdmin(settings).facts()
    found = compare(
        settings.topics,
        facts,
        dev=settings.dev,
        archive_interval_ms=settings.archive.interval_ms if settings.archive.enabled else 0,
        erasure=settings.erasure,
    )
    missing = [
        (f"queue {name} has no topic", f"run `dalsegno topics create --queue {name}`", False)
        for name in queues or []
        if settings.topics.queue(name) not in facts
    ]
    lines = [(line, False) for line in found.faults] + [(line, True) for line in found.warnings]
    return missing + [
        (detail, remedy, mild)
        for line, mild in lines
        for detail, _, remedy in [line.rpartition(": ")]
    ]
