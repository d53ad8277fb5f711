"""`dalsegno escalations list`: what waits for people."""

import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings

_GROUPS = ("flow", "step", "failure", "dependency", "cause")


def list_packages(
    *,
    flow: Annotated[str, typer.Option(help="Only of this flow")] = "",
    step: Annotated[str, typer.Option(help="Only of this step")] = "",
    failure: Annotated[str, typer.Option(help="Only of this failure type")] = "",
    dependency: Annotated[str, typer.Option(help="Only where this dependency failed")] = "",
    cause: Annotated[str, typer.Option(help="Only of this cause")] = "",
    run: Annotated[str, typer.Option(help="Only of this run")] = "",
    notices: Annotated[bool, typer.Option("--notices", help="Also what asks nothing")] = False,
    each: Annotated[bool, typer.Option("--each", help="One line each, not grouped")] = False,
    freeze: Annotated[Path | None, typer.Option(help="Write a list for `decide --bulk`")] = None,
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """List open packages, grouped by flow, step, failure type, dependency and cause."""
    from dalsegno.ops.kafka.reader import Reader
    from dalsegno.ops.people.frozen import freeze as write_list
    from dalsegno.ops.people.packages import Filter, read_open

    settings = read_settings()
    wanted = Filter(flow, step, failure, dependency, cause, run, notices)
    with Reader(settings) as reader:
        packages = read_open(reader, settings, time.time_ns() // 1_000_000, wanted)
    if freeze is not None:
        count = write_list(packages, freeze)
        print(f"{count} package(s) frozen in {freeze}")
        return
    if json:
        print_json(packages)
        return
    if each or run:
        print_table(
            ("package", "asked", "by (UTC)", "flow", "step", "cause"),
            (
                (p.escalation_id, p.asked, when(p.answer_by_ms), p.flow, p.step or "-", p.cause)
                for p in packages
            ),
            "nobody is waiting for a person",
        )
        return
    groups = Counter(
        (p.flow, p.step or "-", p.failure_type or p.asked, p.dependency or "-", p.cause)
        for p in packages
    )
    first = {key: min(p.answer_by_ms for p in packages if _key(p) == key) for key in groups}
    print_table(
        ("open", *_GROUPS, "first due (UTC)"),
        ((count, *key, when(first[key])) for key, count in groups.most_common()),
        "nobody is waiting for a person",
    )


def _key(package: object) -> tuple[str, str, str, str, str]:
    from dalsegno.schemas.outputs import Escalation

    assert isinstance(package, Escalation)
    kind = package.failure_type or package.asked
    return (package.flow, package.step or "-", kind, package.dependency or "-", package.cause)
