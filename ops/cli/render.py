"""What commands print: a table for people, JSON for programs; progress goes to standard error."""

from __future__ import annotations

import base64
import datetime as dt
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Progress

_UNBOUNDED = 100_000
_REST = 40
"""Columns of a terminal that are left to what stands beside a long name."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def plain(value: object) -> Json:
    """Any value of ours as JSON: bytes as base64, times as ISO 8601, NaN, infinities
    and blob references as text.
    """
    import msgspec

    from dalsegno.schemas.blob import Blob

    if isinstance(value, Blob):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(plain(value)), indent=2).decode())


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str) -> None:
    """Rows under their columns, or the sentence `empty` when there are none.

    The first column is what other commands take, so it is never folded. Where nobody reads along
    (a pipe, a file) a row is one line.
    """
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table

    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    cells = [[str(cell) for cell in row] for row in rows]
    first = max((len(row[0]) for row in cells), default=0)
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", min_width=None if index else first)
    for row in cells:
        table.add_row(*row)
    if not console.is_terminal:
        unbounded = console.options.update(width=_UNBOUNDED)
        console.width = max(console.width, Measurement.get(console, unbounded, table).maximum)
    elif first + _REST > console.width:
        console.width = first + _REST
    console.print(table if table.row_count else empty, highlight=False, markup=not table.row_count)


def when(at_ms: int) -> str:
    """Unix milliseconds as UTC text, or a dash for none."""
    if not at_ms:
        return "-"
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def tell(line: str) -> None:
    """A word beside the output, on standard error."""
    print(f"dalsegno: {line}", file=sys.stderr)


def progress_bar() -> Progress:
    """A bar on standard error that vanishes when done; silent where nobody watches."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
