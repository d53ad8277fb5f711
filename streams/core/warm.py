"""What the fold asks of the runs that are not in memory: they are bytes, kept beside it.

A cache that may be lost at any time: what cannot be read, or is not what was put in, raises
`WarmLost`, and the partition begins again from its checkpoint. So what is answered decides nothing:
a fold with it and one without give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class WarmLost(Exception):  # noqa: N818 - names what is found
    """Runs that are not in memory cannot be read back. The partition restores its checkpoint.

    It passes every boundary of a unit: no run is at fault.
    """


PASSES = (MemoryError, RecursionError, WarmLost)
"""What no unit may catch: the partition must stop, and be restored before it goes on."""


class PackedRun(NamedTuple):
    """A run or stub as bytes: its header part and the others as (key, value)."""

    header: bytes
    parts: list[tuple[bytes, bytes]]


class PackedPlan(NamedTuple):
    """A plan, how many runs and stubs name it, and how many plans extend it."""

    packed: bytes
    refs: int
    longer: int


class Totals(NamedTuple):
    """Runs and stubs that are stored, how many of them have not ended, and of these how many are
    in the archive.
    """

    runs: int
    open: int
    cold: int = 0


class Warm(Protocol):
    """Runs as of the last checkpoint that was stored. Every call raises `WarmLost`."""

    def load(self, run_ids: Sequence[str]) -> dict[str, PackedRun]:
        """Those of the runs that are stored."""

    def plans(self, digests: Iterable[bytes]) -> dict[bytes, PackedPlan]:
        """Those of the plans that are stored."""

    def due(
        self, after: tuple[int, str] | None, limit: int, *, live: bool
    ) -> list[tuple[int, str]]:
        """The next deadlines and their runs behind `after`, in order; fewer than `limit` are all
        there are.
        """

    def ids(self, after: str, limit: int) -> list[str]:
        """The next run ids behind `after`, in order."""

    def moving(self) -> list[str]:
        """Runs with attempts in flight or steps in lines, and those wanted from the archive."""

    def totals(self) -> Totals:
        """How many are stored."""

    def others(self) -> list[tuple[bytes, bytes]]:
        """Parts that belong to no run and no plan."""
