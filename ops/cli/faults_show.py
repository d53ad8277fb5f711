"""`dalsegno faults show`: one fault point, with who steered it by hand and why."""

from typing import Annotated

import typer

from dalsegno.ops.cli.render import print_json, print_table, when
from dalsegno.ops.cli.settings import read_settings


def show(
    point: Annotated[
        str, typer.Argument(metavar="POINT", help="A dependency, or dependency/error class")
    ],
    json: Annotated[bool, typer.Option("--json", help="Machine-readable")] = False,
) -> None:
    """Show one fault point: its breaker, its window, its partitions, hand controls."""
    from dalsegno.ops.kafka.fault_points import read_point

    found = read_point(read_settings(), point)
    if json:
        print_json(found)
        return
    print(f"{found.name}: {found.phase}, since {when(found.changed_ms)}: {found.reason}")
    print(f"window {found.size}, smoothed span {found.window.smooth_ms} ms,", end=" ")
    print(f"usual {found.baseline_ms} ms; {found.failures} failures, {found.successes} successes")
    if found.phase == "open":
        until = "closed by hand" if found.held_open else when(found.until_ms)
        print(f"open until {until}; last error {found.error_class or '-'}")
    if found.checked:
        print(f"health check: {found.health_detail or 'has not answered yet'}")
    print_table(
        ("partition", "waiting", "running", "unspent", "on their way", "heard of (UTC)"),
        (
            (number, side.waiting, side.running, side.unspent, side.granted, when(side.told_ms))
            for number, side in sorted(found.sides.items())
        ),
        "no partition has reported",
    )
    print_table(
        ("by hand", "limit", "who", "why", "when (UTC)"),
        (
            (hand.action, hand.limit or "-", hand.decided_by, hand.reason, when(hand.at_ms))
            for hand in found.hands
        ),
        "never steered by hand",
    )
