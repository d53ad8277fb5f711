"""Which runs are in memory, how long they have not been touched, and what the store lacks.

A run may leave memory when the store has all of it: nothing of it has changed since a capture that
was stored. What was captured and is not stored yet stays; what was removed and is not removed there
yet is not asked for. So the answer is always the run as it is.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final

from dalsegno.streams.core.warm import PackedRun, Warm

_PAGE: Final = 500


class Residency:
    """See above. `outside`: runs and stubs that are not in memory. `bytes_held`: of those that are,
    as they were at the last capture. `late`: runs read one by one, while the fold waited.
    """

    def __init__(self, warm: Warm) -> None:
        self.warm = warm
        self.outside = warm.totals().runs
        self.bytes_held = 0
        self.late = 0
        self.captures = 0
        self._pinned: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        self._nothing: Container[str] = ()
        self._batch: Container[str] = ()
        self._ages: dict[str, tuple[int, int]] = {}

    def read(self, run_id: str) -> PackedRun | None:
        """A run that is not in memory; None when there is none. Raises `WarmLost`."""
        if not self.outside or run_id in self._gone or run_id in self._nothing:
            return None
        return self.warm.load((run_id,)).get(run_id)

    def hold(self, run_ids: Container[str]) -> None:
        """These stay until others are held: a batch touches them, or is about to."""
        self._batch = run_ids

    def looked_up(
        self, run_ids: Iterable[str], found: dict[str, PackedRun]
    ) -> dict[str, PackedRun]:
        """What was read beside the fold: those of it that are still there."""
        self._nothing = {run_id for run_id in run_ids if run_id not in found}
        return {run_id: packed for run_id, packed in found.items() if run_id not in self._gone}

    def came(self, run_id: str, weight: int, stamp: int) -> None:
        """A run is in memory again."""
        self.outside -= 1
        self.aged(run_id, weight, stamp)

    def aged(self, run_id: str, weight: int, stamp: int) -> None:
        """A run was touched, at this count of the engine's."""
        old = self._ages.pop(run_id, None)
        self.bytes_held += weight - (0 if old is None else old[1])
        self._ages[run_id] = (stamp, weight)

    def captured(self, changed: Iterable[str]) -> None:
        """The parts of these runs, and what is gone, are on their way to the store."""
        self.captures += 1
        for run_id in changed:
            self._pinned[run_id] = self.captures
        for run_id, number in self._gone.items():
            if not number:
                self._gone[run_id] = self.captures

    def stored(self, number: int) -> None:
        """The store has everything up to this capture."""
        self._pinned = {run_id: at for run_id, at in self._pinned.items() if at > number}
        self._gone = {run_id: at for run_id, at in self._gone.items() if not 0 < at <= number}

    def removed(self, run_id: str) -> None:
        """A run that is no more, whether or not the store has it."""
        self._gone[run_id] = 0
        old = self._ages.pop(run_id, None)
        self.bytes_held -= 0 if old is None else old[1]

    @property
    def oldest(self) -> int | None:
        """When the run was touched that has not been for longest; None without one."""
        for stamp, _ in self._ages.values():
            return stamp
        return None

    def leaving(self, bytes_wanted: int, dirty: Container[str], until: int) -> list[str]:
        """Runs to leave memory, longest untouched first: of this many bytes, or touched before
        `until`.
        """
        leaving: list[str] = []
        for run_id, (stamp, weight) in self._ages.items():
            if bytes_wanted <= 0 or stamp > until:
                break
            if run_id not in self._pinned and run_id not in dirty and run_id not in self._batch:
                bytes_wanted -= weight
                leaving.append(run_id)
        for run_id in leaving:
            self.bytes_held -= self._ages.pop(run_id)[1]
        self.outside += len(leaving)
        if leaving:
            self._nothing = ()
        return leaving

    def ids(self, held: Container[str]) -> Iterator[str]:
        """Runs that are not in memory. Raises `WarmLost`."""
        after = ""
        while page := self.warm.ids(after, _PAGE):
            after = page[-1]
            yield from (name for name in page if name not in held and name not in self._gone)

    def runs(self, held: Container[str]) -> Iterator[tuple[str, PackedRun]]:
        """The same, with their parts."""
        after = ""
        while page := self.warm.ids(after, _PAGE):
            after = page[-1]
            wanted = [name for name in page if name not in held and name not in self._gone]
            yield from self.warm.load(wanted).items()

    def due(
        self, after: tuple[int, str] | None, limit: int, held: Container[str], *, live: bool
    ) -> tuple[list[tuple[int, str]], tuple[int, str] | None]:
        """Deadlines of runs outside, as the timers ask for them."""
        page = self.warm.due(after, limit, live=live)
        last = page[-1] if len(page) == limit else None
        return [due for due in page if due[1] not in held and due[1] not in self._gone], last
