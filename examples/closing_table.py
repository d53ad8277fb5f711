"""What an example shows at its end: its facts, by the services' books and the log."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show_facts(
    console: Console,
    title: str,
    facts: Iterable[tuple[str, object]],
    *,
    verified: bool,
    seconds: float,
    wrong: Iterable[str] = (),
) -> None:
    """`verified`: whether the log, folded again, is what the engines have. `seconds`: of it all.
    `wrong`: what contradicts the example, a line each.
    """
    table = Table(title=title, show_header=False)
    ends = (
        ("log folded again equals the tables", "yes" if verified else "NO"),
        ("whole example", f"{seconds:.0f} s"),
    )
    for label, value in (*facts, *ends):
        table.add_row(label, str(value))
    console.print(table)
    for fault in wrong:
        console.print(Text(f"WRONG: {fault}", style="red"))
