"""The stack, once for all tests of this folder, and the table that closes them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from tests.chaos import stack as stacks
from tests.chaos.load import Bench, Row
from tests.chaos.stack import NoDockerError, Stack

REPORT = pytest.StashKey[list[str]]()
FOUND = (
    ("runs", "runs"),
    ("events", "events"),
    ("ack_gap_s", "acks s"),
    ("output_gap_s", "outputs s"),
    ("run_p50_s", "run p50 s"),
    ("run_max_s", "run max s"),
    ("repeats", "repeats"),
    ("effects", "effects"),
)
OUTAGE = (
    ("opened_after_s", "opened s"),
    ("tried_during", "tried"),
    ("arrived_during", "arrived"),
    ("found_after_s", "found s"),
    ("recovered_after_s", "all s"),
    ("tried_after", "tried then"),
    ("peak_per_s", "peak/s"),
    ("served", "served"),
    ("repeats", "repeats"),
)


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """CHAOS_KEEP=1 leaves the stack up afterwards, and takes one that is up as it is."""
    report = request.config.stash[REPORT] = []
    keep, stack = bool(os.environ.get("CHAOS_KEEP")), Stack()
    try:
        if not (keep and stack.is_up()):
            report.extend(bring_up(stack))
        made = Bench(stack)
        yield made
        report.extend(table(made.rows))
        report.append(memory(stack.memory_mb()))
    finally:
        if not keep:
            stack.down()


def bring_up(stack: Stack) -> Iterator[str]:
    """Engine, images, stack; skips the tests where that cannot be."""
    begun = time.monotonic()
    try:
        stacks.ensure()
    except NoDockerError as error:
        yield f"skipped: {error}"
        pytest.skip(f"no Docker here: {error}")
    yield f"engine and base images: {time.monotonic() - begun:.0f} s"
    begun = time.monotonic()
    stacks.build()
    yield f"own images: {time.monotonic() - begun:.0f} s"
    begun = time.monotonic()
    stack.up()
    yield f"up and ready: {time.monotonic() - begun:.0f} s"


def table(rows: list[Row]) -> Iterator[str]:
    """Gaps: the longest time without an acknowledged start, and without a transition."""
    heads = "".join(f"{head:>11}" for _, head in FOUND)
    yield f"{'fault':<32}{'outcome':<12}{'lasted s':>9}{'back s':>8}{'judged s':>9}{heads}"
    for row in rows:
        cells = "".join(f"{_cell(getattr(row.verdict, name, None)):>11}" for name, _ in FOUND)
        times = f"{row.lasted_s:>9.1f}{row.back_s:>8.1f}{row.judged_s:>9.1f}"
        yield f"{row.fault:<32}{row.outcome:<12}{times}{cells}"
    outages = [(row.fault, row.outage) for row in rows if row.outage is not None]
    if outages:
        yield f"{'outage':<32}" + "".join(f"{head:>11}" for _, head in OUTAGE)
    for fault, outage in outages:
        cells = "".join(f"{_cell(getattr(outage, name)):>11}" for name, _ in OUTAGE)
        yield f"{fault:<32}{cells}"


def _cell(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str("-" if value is None else value)


def memory(used: dict[str, float]) -> str:
    parts = ", ".join(f"{name} {mb:.0f}" for name, mb in sorted(used.items()))
    return f"memory in MB: {parts}; together {sum(used.values()):.0f}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash.get(REPORT, [])
    if lines:
        terminalreporter.section("chaos")
        terminalreporter.write_line("\n".join(lines))
