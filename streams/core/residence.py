"""What a partition's owner does about runs that are not in memory. It decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dalsegno.streams.core.held_runs import HeldRuns
from dalsegno.streams.core.moment import Moment
from dalsegno.streams.core.residency import Residency
from dalsegno.streams.core.warm import PackedRun, Warm

# Deadlines that fall due together and are read beside the fold; the rest is read by the fold.
_DUE_MAX: Final = 5_000


class Residence:
    """One partition with a store. The owner keeps this order, for every checkpoint:

    1. `Partition.capture` gives the changed parts, `captures` is the number of that capture;
    2. the parts are committed to the changelog, and then put in the store;
    3. `stored(number)`: from here on what did not change meanwhile may leave memory (`leave`).

    And for every batch: `missing` → read them from the store → `offer`, with nothing applied in
    between → apply.
    """

    def __init__(self, runs: HeldRuns, residency: Residency, now: Moment) -> None:
        self._runs = runs
        self._residency = residency
        self._now = now

    @property
    def warm(self) -> Warm:
        """The store."""
        return self._residency.warm

    @property
    def captures(self) -> int:
        """The number of the last capture."""
        return self._residency.captures

    @property
    def bytes_held(self) -> int:
        """What the runs in memory take, as of the last capture."""
        return self._residency.bytes_held

    @property
    def outside(self) -> int:
        """Runs and stubs that are not in memory."""
        return self._residency.outside

    @property
    def late(self) -> int:
        """Runs that the fold had to wait for, so far."""
        return self._residency.late

    @property
    def oldest(self) -> int | None:
        """When the run was touched that has not been for longest; None without one."""
        return self._residency.oldest

    def stored(self, number: int, stamp: int) -> None:
        """The store has everything up to this capture. `stamp`: date of what is touched next."""
        self._runs.stored(number)
        self._runs.stamp = stamp

    def leave(self, bytes_wanted: int, until: int) -> int:
        """Lets runs leave memory that have not been touched for longest: of this many bytes, and
        none that was touched after `until`. Returns how many did.
        """
        return self._runs.leave(bytes_wanted, until)

    def missing(self, run_ids: Iterable[str], log_ms: int) -> list[str]:
        """Which of these runs, and of those whose deadlines pass by this log time, are not here.

        All of them stay until `release`, or until it is asked anew.
        """
        now = self._now
        live_ms = now.clock.live_ms + max(0, log_ms - now.clock.log_ms)
        return self._runs.missing(run_ids, log_ms, live_ms, _DUE_MAX)

    def release(self) -> None:
        """The batch is through: what was held for it may leave."""
        self._residency.hold(())

    def offer(self, run_ids: list[str], found: dict[str, PackedRun]) -> None:
        """What was read of the runs that were missing."""
        self._runs.offer(run_ids, found)
