"""Puts, events, folds that lag, and sweeps that stand still anywhere, in an order drawn by a seed.

Between any two calls to the store somebody else may have a turn. A run holds what the log says, so
a blob that the log names and a run still holds has to be readable, whether or not the fold has come
that far.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence

from tests.unit.storage.blob_lab import GRACE_MS, BlobLab, packed

from dalsegno.schemas.blob import Blob
from dalsegno.storage.blobs.store import Stored
from dalsegno.storage.blobs.sweep import Sweep, Unheld

RUNS = 6
VALUES = [packed(64, mark) for mark in range(4)]
Event = tuple[int, bytes | None]
Held = dict[int, bytes]
Judge = Callable[[Sequence[Stored], Collection[bytes], int], Sweep]


def apply(held: Held, event: Event) -> None:
    """A run takes a blob in the place of what it had, or goes (None)."""
    run, digest = event
    if digest is None:
        held.pop(run, None)
    else:
        held[run] = digest


class Races:
    """`caught_up`: whether sweeps wait for the fold; `lost`: what went wrong, if something did."""

    def __init__(self, seed: int, *, caught_up: bool = True) -> None:
        self.random = random.Random(seed)
        self.lab = BlobLab()
        self.log: list[Event] = []
        self.fold: Held = {}
        self.position = 0
        self.truth: Held = {}
        self.on_their_way: list[tuple[int, Event]] = []
        self.swept = 0
        self.renewed = 0
        self._caught_up = caught_up
        self._sweeper = self._sweeps()
        self._inside = False
        self.judge: Callable[[Unheld], Judge] = lambda unheld: unheld.judge
        self.lab.objects.call_hook = self._meanwhile

    def run(self, turns: int) -> None:
        """Raises `AssertionError` when a blob is gone that a run holds."""
        for _ in range(turns):
            self._turn()
            self._check()

    def _turn(self) -> None:
        actions = [self._put, self._forget, self._append, self._fold_on, self._sweep, self._wait]
        self.random.choices(actions, weights=(3, 2, 4, 4, 6, 3))[0]()

    def _meanwhile(self) -> None:
        """Between two calls to the store, of whoever makes them."""
        if self._inside:
            return
        self._inside = True
        try:
            for _ in range(self.random.choice((0, 0, 1, 3))):
                self.random.choice((self._sweep, self._fold_on, self._append, self._wait))()
        finally:
            self._inside = False

    def _wait(self) -> None:
        # What is on its way has to be in the log in time: that is what the SDK sees to.
        most = min((at for at, _ in self.on_their_way), default=1 << 62) - self.lab.clock.now_ms
        wanted = self.random.choice((1, 50, GRACE_MS // 8, GRACE_MS // 3, GRACE_MS, 3 * GRACE_MS))
        if wanted < most or not self._inside:
            while self.on_their_way and wanted >= most:
                self._append()
                most = min((at for at, _ in self.on_their_way), default=1 << 62)
                most -= self.lab.clock.now_ms
            self.lab.clock.now_ms += wanted

    def _put(self) -> None:
        blob, data = self.random.choice(VALUES)
        began_ms = self.lab.clock.now_ms
        if self.random.random() < 0.5 or not self.lab.store.renew(1, blob):
            self.lab.store.put(1, blob, data)
        else:
            self.renewed += 1
        # Counted from when the call began; one that took too long is made again.
        limit_ms = began_ms + GRACE_MS // 2
        if self.lab.clock.now_ms < limit_ms:
            self.on_their_way.append((limit_ms, (self.random.randrange(RUNS), blob.digest)))

    def _forget(self) -> None:
        self._log((self.random.randrange(RUNS), None))

    def _append(self) -> None:
        if self.on_their_way:
            place = self.random.randrange(len(self.on_their_way))
            _, event = self.on_their_way.pop(place)
            self._log(event)

    def _log(self, event: Event) -> None:
        self.log.append(event)
        apply(self.truth, event)

    def _fold_on(self) -> None:
        for event in self.log[self.position : self.position + self.random.randrange(4)]:
            apply(self.fold, event)
            self.position += 1

    def _sweep(self) -> None:
        if self.random.random() < 0.01:
            self._sweeper = self._sweeps()  # another owner
        next(self._sweeper)

    def _sweeps(self) -> Iterator[None]:
        unheld = Unheld(GRACE_MS)
        judge = self.judge(unheld)
        memory = self.lab.memory
        while True:
            now_ms = self.lab.clock.now_ms
            listed = list(_listing(self.lab, memory))
            yield
            end = len(self.log)
            while self._caught_up and self.position < end:
                yield
            marked: set[bytes] = set()
            for run in range(RUNS):
                if run in self.fold:
                    marked.add(self.fold[run])
                yield
            judged = judge(listed, marked, now_ms)
            going = [*judged.delete, *(old for old, new in judged.replaced if self._whole(new))]
            for each in going:
                yield
                memory.delete([each.key])
                self.swept += 1
            yield

    def _whole(self, stored: Stored) -> bool:
        return self.lab.memory.stat(stored.key) is not None

    def _check(self) -> None:
        there = {stat.key.split("/")[3] for stat in self.lab.memory.list("")}
        for digest in self.truth.values():
            assert digest.hex() in there, f"{digest.hex()[:8]} is gone, and a run holds it"


def _listing(lab: BlobLab, memory: object) -> Iterator[Stored]:
    inside, lab.objects.call_hook = lab.objects.call_hook, lambda: None
    try:
        yield from list(lab.store.stored(1))
    finally:
        lab.objects.call_hook = inside


def renewing_by_name_alone(lab: BlobLab) -> None:
    """What is there is taken for young, however old it is."""
    store = lab.store

    def renew(partition: int, blob: Blob) -> bool:
        return bool(store._generations(partition, blob))

    store.renew = renew  # type: ignore[method-assign]
