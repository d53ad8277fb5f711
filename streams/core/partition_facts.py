"""What a partition says of itself: clocks, deadlines, counts, what is in force."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.schemas.control import Policy
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.arrivals import Arrivals
from dalsegno.streams.core.controls import Controls
from dalsegno.streams.core.moment import Moment
from dalsegno.streams.core.near_limits import NearLimit, near_limits
from dalsegno.streams.core.runs import Runs
from dalsegno.streams.core.runstate import NEVER, Run
from dalsegno.streams.core.tombstones import Tombstone, Tombstones


class PartitionFacts:
    """Read-only; see `Partition`."""

    _now: Moment
    _runs: Runs
    _controls: Controls
    _arrivals: Arrivals
    _stones: Tombstones

    @property
    def log_ms(self) -> int:
        """Log time: the largest append time so far."""
        return self._now.clock.log_ms

    @property
    def live_ms(self) -> int:
        """Live time: log time without the gaps in which broker or owner stood still."""
        return self._now.clock.live_ms

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._now.policy

    @property
    def rules(self) -> int:
        """The rules in force."""
        return self._controls.rules

    @property
    def numbers(self) -> dict[str, int]:
        """The last applied number of each monotone kind (and its subject, after a colon)."""
        return dict(self._controls.numbers)

    @property
    def archived_to(self) -> int:
        """The first offset that no confirmed segment of the archive holds."""
        return self._controls.archived_to

    @property
    def next_log_deadline_ms(self) -> int | None:
        """The next deadline on log time: a tick is due then, if no event comes before."""
        timer = self._runs.log_timers.next()
        due = NEVER if timer is None else timer[0]
        recovery = self._now.recovery
        if recovery.holds or recovery.freezes:
            width_max = self._now.policy.recovery_width_max
            due = min(due, recovery.next_ms(self._now.log_ms, width_max))
        due = min(due, self._now.points.due_ms)
        return None if due >= NEVER else due

    @property
    def next_report_ms(self) -> int | None:
        """When something has to be said about a fault point; None while all are healthy."""
        due = self._now.points.due_ms
        return None if due >= NEVER else due

    @property
    def next_live_deadline_ms(self) -> int | None:
        """The next deadline on live time."""
        due = self._runs.live_timers.next()
        return None if due is None else due[0]

    @property
    def needs_tick(self) -> bool:
        """Whether a step is dispatched or running, so that live time has to go on."""
        return self._now.flying > 0

    @property
    def in_flight(self) -> int:
        """Attempts dispatched or running."""
        return self._now.flying

    @property
    def counts(self) -> dict[Outcome, int]:
        """Events by outcome. With `waiting` they sum up to `delivered`."""
        return dict(self._arrivals.counts)

    @property
    def waiting(self) -> int:
        """Events that wait for their run."""
        return self._arrivals.waiting

    @property
    def delivered(self) -> int:
        """Records applied so far."""
        return sum(self._arrivals.counts.values()) + self._arrivals.waiting

    @property
    def output_counts(self) -> dict[str, int]:
        """Outputs so far by channel."""
        return dict(self._now.outbox.counts)

    @property
    def open_runs(self) -> int:
        """Runs that have not ended."""
        return self._runs.open

    @property
    def erasures(self) -> Sequence[tuple[bytes, Tombstone]]:
        """Runs that were erased, by the digest of their ids, in the order of the requests."""
        return self._stones.all()

    def live_run(self, run_id: str) -> Run | None:
        """The run itself, if it is live: to look at, never to change. It is kept up to date until
        it has ended, its end included.
        """
        found = self._runs.get(run_id)
        return found if isinstance(found, Run) else None

    def near_limits(self, run_id: str) -> tuple[NearLimit, ...]:
        """Which limits of the policy the context of a live run is near, if it is in memory."""
        held = self._runs.peek(run_id)
        return near_limits(held, self._now.policy) if isinstance(held, Run) else ()

    def erased(self, run_id: str) -> Tombstone | None:
        """What is kept of a run that was erased."""
        return self._stones.of(run_id)
