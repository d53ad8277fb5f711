"""The peers of the crash workload, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from benchmarks.crash_lab import dbos, journal, langgraph, littlehorse, restate, temporal
from benchmarks.crash_lab.in_worker import LEFT_OUT
from benchmarks.crash_lab.installing import NotInstallable
from benchmarks.crash_lab.system import System

CPU_RUNS: Final = 4_000


@dataclass(frozen=True)
class Peer:
    """How to get it, and what it takes part in.

    `install` fetches what it needs once and returns what makes a fresh system for a round; it
    raises `NotInstallable`. `left_out`: cases that it cannot do, with the reason. `cpu_runs`: a
    slow one takes fewer in that case.
    """

    install: Callable[[], Callable[[], System]]
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    cpu_runs: int = CPU_RUNS


_ONE_SERVER: Final = {"standby": "one server has no standby"}
_SLOW: Final = {"cpu": "it does some 30 steps/s; the case clean has its CPU per step"}

PEERS: Final[Mapping[str, Peer]] = {
    "restate": Peer(restate.install, left_out=_ONE_SERVER),
    "temporal": Peer(temporal.install, left_out={**_ONE_SERVER, **_SLOW}),
    "littlehorse": Peer(littlehorse.install, left_out={**_ONE_SERVER, **_SLOW}),
    "dbos-sqlite": Peer(dbos.on_sqlite, LEFT_OUT, cpu_runs=1_000),
    "dbos-postgres": Peer(dbos.on_postgres, LEFT_OUT, cpu_runs=1_000),
    "langgraph-sqlite": Peer(langgraph.on_sqlite, LEFT_OUT, cpu_runs=1_000),
    "langgraph-postgres": Peer(langgraph.on_postgres, LEFT_OUT, cpu_runs=1_000),
    "journal": Peer(journal.install, LEFT_OUT),
}


class Installed(NamedTuple):
    """A peer that can be had here."""

    peer: Peer
    make: Callable[[], System]


def install(
    names: Iterable[str], tell: Callable[[str], None], table: Mapping[str, Peer] = PEERS
) -> Iterator[tuple[str, Installed]]:
    """Those that can be had, by name; of each other the reason is told."""
    for name in names:
        try:
            yield name, Installed(table[name], table[name].install())
        except NotInstallable as reason:
            tell(f"without {name}: {reason}")
