"""`dalsegno recovery freeze`: nothing more is dispatched for recovery in a scope."""

from typing import Annotated

import typer

from dalsegno.ops.cli.recovery_append import append_everywhere


def freeze(
    flow: Annotated[str, typer.Option(help="Only runs of this flow")] = "",
    fault_point: Annotated[str, typer.Option(help="Only steps that depend on this")] = "",
    reason: Annotated[str, typer.Option(help="Why; it is on record")] = "",
) -> None:
    """Hold further attempts of steps, on every partition; first attempts go on."""
    from dalsegno.schemas.control import RecoveryFrozen

    def event(partition: int, frozen: int, _: int) -> RecoveryFrozen:
        return RecoveryFrozen(
            source="cli",
            partition=partition,
            number=frozen + 1,
            flow=flow,
            fault_point=fault_point,
            reason=reason,
        )

    count = append_everywhere(event)
    print(f"frozen on {count} partition(s); look: `dalsegno recovery preview`")
