"""`dalsegno recovery release`: what was frozen goes on, a little at first."""

from typing import Annotated

import typer

from dalsegno.ops.cli.recovery_append import append_everywhere


def release(
    flow: Annotated[str, typer.Option(help="The scope, as it was frozen")] = "",
    fault_point: Annotated[str, typer.Option(help="The scope, as it was frozen")] = "",
    rate: Annotated[
        int, typer.Option(min=0, help="At most so many a second per partition; 0: no limit")
    ] = 0,
    reason: Annotated[str, typer.Option(help="Why; it is on record")] = "",
) -> None:
    """Let the line of a scope go: one step, a second later two, then four, up to the rate."""
    from dalsegno.schemas.control import RecoveryReleased

    def event(partition: int, _: int, released: int) -> RecoveryReleased:
        return RecoveryReleased(
            source="cli",
            partition=partition,
            number=released + 1,
            flow=flow,
            fault_point=fault_point,
            rate_per_s=rate,
            reason=reason,
        )

    count = append_everywhere(event, (flow, fault_point))
    print(f"released on {count} partition(s)")
