"""Lists and runs the benchmarks of this folder.

    python -m benchmarks                     run all of them
    python -m benchmarks --list              list them
    python -m benchmarks core codec          run these
    python -m benchmarks core --steps 200    run one, with options of its own

A benchmark is a module with `main(argv: list[str]) -> int`. It prints its figures as a table and
returns 0, or 1 when a figure misses what is promised; so does this command, for any of them.
"""

from __future__ import annotations

import ast
import importlib
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent


def catalogue() -> dict[str, str]:
    """Name and first line of each benchmark, found without importing any."""
    found: dict[str, str] = {}
    for path in sorted(FOLDER.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        has_main = any(isinstance(n, ast.FunctionDef) and n.name == "main" for n in tree.body)
        if path.stem != "__main__" and has_main:
            found[path.stem] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return found


def main(argv: list[str]) -> int:
    """Runs what `argv` names."""
    console = Console()
    known = catalogue()
    if "--list" in argv or "--help" in argv[:1] or "-h" in argv[:1]:
        table = Table("benchmark", "measures", title="python -m benchmarks NAME ...")
        for name, text in known.items():
            table.add_row(name, text)
        console.print(table)
        return 0
    first_option = next((i for i, word in enumerate(argv) if word.startswith("-")), len(argv))
    names, options = argv[:first_option], argv[first_option:]
    unknown = [name for name in names if name not in known]
    if unknown:
        console.print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    if options and len(names) != 1:
        console.print(f"options ({' '.join(options)}) need exactly one benchmark before them")
        return 2
    missed: list[str] = []
    for name in names or known:
        console.rule(f"[bold]{name}")
        started = time.monotonic()
        if importlib.import_module(f"benchmarks.{name}").main(options):
            missed.append(name)
        console.print(f"{name}: {time.monotonic() - started:.0f} s")
    if missed:
        console.print(f"[red]missed what is promised: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
