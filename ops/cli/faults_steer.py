"""`dalsegno faults open|close|limit`: steer a fault point by hand, on record."""

import getpass
from typing import Annotated

import typer

from dalsegno.ops.cli.settings import read_settings

_POINT = typer.Argument(metavar="POINT", help="A dependency, or dependency/error class")
_REASON = typer.Option(help="Why; it is kept")
_BY = typer.Option(help="Who; the user of this shell by default")


def open_point(
    point: Annotated[str, _POINT], reason: Annotated[str, _REASON], by: Annotated[str, _BY] = ""
) -> None:
    """Let nothing go that depends on it, until it is closed by hand."""
    _steer(point, "open", reason, by)
    print(f"{point} is held open: `dalsegno faults close {point}` lets it be tried again")


def close_point(
    point: Annotated[str, _POINT], reason: Annotated[str, _REASON], by: Annotated[str, _BY] = ""
) -> None:
    """Begin again, with a window of one."""
    _steer(point, "close", reason, by)
    print(f"{point} begins again, one step at a time")


def limit_point(
    point: Annotated[str, _POINT],
    most: Annotated[
        int, typer.Argument(metavar="N", min=0, help="Steps at once; 0: no limit any more")
    ],
    reason: Annotated[str, _REASON],
    by: Annotated[str, _BY] = "",
) -> None:
    """Let at most so many steps be out on it at once."""
    _steer(point, "limit", reason, by, most)
    print(f"{point}: " + (f"at most {most} at once" if most else "no limit any more"))


def _steer(point: str, action: str, reason: str, by: str, limit: int = 0) -> None:
    from dalsegno.ops.kafka.fault_points import steer
    from dalsegno.schemas.faults import HandAction

    who = by or getpass.getuser()
    steer(read_settings(), point, HandAction(action), by=who, reason=reason, limit=limit)
