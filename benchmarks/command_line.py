"""Command line: CPU time until a command has everything it needs, beside a bare interpreter.

    python -m benchmarks command_line [--rounds 7]

User and system time of fresh processes, in turn, the median of all rounds; no broker is asked. Only
the ratios are meant to be compared.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from typing import Final

from rich.console import Console
from rich.table import Table

_DECIDES: Final = (
    "kafka.reader", "kafka.writer", "people.deciding", "people.keys", "people.packages",
    "cli.settings", "cli.render",
)  # fmt: skip
_CLI: Final = "from dalsegno.ops.cli.app import build"
_COMMANDS: Final = {
    "an interpreter": "pass",
    "dalsegno --help": f"{_CLI}; build()(['--help'], standalone_mode=False)",
    "dalsegno escalations decide": "; ".join(
        [_CLI, "build()", *(f"import dalsegno.ops.{name}" for name in _DECIDES)]
    ),
    "dalsegno worker": "import dalsegno.ops.cli.quick_worker, dalsegno.ops.work",
    "dalsegno.client alone": "import dalsegno.client",
}


def cpu_ms(program: str) -> float:
    """User and system time of one process that runs the program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1_000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main(argv: list[str]) -> int:
    """Prints the table."""
    options = argparse.ArgumentParser(prog="command_line")
    options.add_argument("--rounds", type=int, default=7)
    rounds: int = options.parse_args(argv).rounds
    found: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    for _ in range(rounds):
        for name, program in _COMMANDS.items():
            found[name].append(cpu_ms(program))
    medians = {name: statistics.median(times) for name, times in found.items()}
    table = Table("until it begins", "CPU, ms", "of `dalsegno --help`")
    for name, each in medians.items():
        table.add_row(name, f"{each:.0f}", f"{each / medians['dalsegno --help']:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
