"""`dalsegno faults list`: where each fault point stands."""

from typing import Annotated

import typer

from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings


def list_points(
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """List fault points: breaker, window, what waits and what is out."""
    from dalsegno.ops.kafka.fault_points import read_points

    points = read_points(read_settings())
    if json:
        print_json(points)
        return
    print_table(
        ("fault point", "phase", "since (UTC)", "window", "waiting", "out", "limit", "why"),
        (
            (
                point.name, point.phase, when(point.changed_ms) if point.changed_ms else "-",
                point.size if point.phase == "ramping" else "-", point.waiting, point.out,
                point.limit or "-", point.reason or "-",
            )
            for point in points
        ),
        "nothing was ever reported: all are healthy",
    )  # fmt: skip
