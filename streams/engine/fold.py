"""What the engine needs of the fold of one partition. `dalsegno.streams.core.partition` has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from dalsegno.schemas.control import Policy
from dalsegno.schemas.outputs import Outcome, RunState
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.near_limits import NearLimit
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.warm import Warm

AttemptChange = tuple[tuple[str, str], Attempt | None]
Parts = Iterable[tuple[bytes, bytes]]


class RunView(Protocol):
    """A run as a frozen value that msgspec can encode."""

    @property
    def flow(self) -> str:
        """Name of its flow."""

    @property
    def state(self) -> RunState | None:
        """Its state."""


class Fold(Protocol):
    """A partition's state: pure, synchronous, owned by one task. Times are append times, Unix
    ms.
    """

    position: int

    @property
    def policy(self) -> Policy:
        """The policy in force: intake needs its lists of schemas and MAC keys."""

    @property
    def log_ms(self) -> int:
        """The largest append time seen."""

    @property
    def next_log_deadline_ms(self) -> int | None:
        """The next deadline by log time."""

    @property
    def next_report_ms(self) -> int | None:
        """When something has to be said about a fault point."""

    @property
    def live_ms(self) -> int:
        """Live time: log time without the gaps in which nobody ticked."""

    @property
    def needs_tick(self) -> bool:
        """Whether a step is dispatched or running, so that live time has to move."""

    @property
    def counts(self) -> Mapping[Outcome, int]:
        """Records by outcome, since the log began."""

    @property
    def waiting(self) -> int:
        """Records that wait in stubs or in a quarantined run."""

    @property
    def open_runs(self) -> int:
        """Runs that have not ended."""

    def run(self, run_id: str) -> RunView | None:
        """One run, to be shown; frozen."""

    def is_open(self, run_id: str) -> bool:
        """Whether more may come of this run: it is live, or reports wait for its start."""

    def near_limits(self, run_id: str) -> Iterable[NearLimit]:
        """Which limits of the policy the context of a run in memory is near."""

    def run_ids(self) -> Iterable[str]:
        """All runs, stubs included."""

    def apply(self, record: Record) -> list[Output]:
        """Move to the state after `record`. Bad input never raises; exhausted memory or stack
        does.
        """

    def capture(self) -> list[tuple[bytes, bytes | None]]:
        """Parts changed since the last call (None: deleted), and always the partition's own
        part.
        """

    def parts(self) -> dict[bytes, bytes]:
        """The whole state, by part."""

    def drain_in_flight(self) -> list[AttemptChange]:
        """Changes of attempts in flight since the last call; all of them after a restore."""


class FoldFactory(Protocol):
    """Makes folds. `mac_keys`: ids of the keys in the settings; `topic`: the events topic."""

    def __call__(self, number: int, *, mac_keys: tuple[str, ...] = (), topic: str = "") -> Fold:
        """An empty partition at position 0."""

    def restore(self, number: int, parts: Parts, *, topic: str = "") -> Fold:
        """A partition from the parts of its checkpoint."""

    def open(
        self, number: int, warm: Warm, *, mac_keys: tuple[str, ...] = (), topic: str = ""
    ) -> Fold:
        """A partition as a store has it. Only asked for with a data folder."""


Clock = Callable[[], float]
"""Monotonic seconds."""
