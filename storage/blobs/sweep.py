"""Which blobs of a partition may go: mark and sweep.

The order is what makes it safe. The owner of the partition

1. lists the blobs of it; only generations older than a grace are looked at further;
2. asks how long the log is, and folds up to there;
3. walks all runs that it holds and collects the references in them (`mark`);
4. deletes what no run has held for a whole grace, and generations that a newer one replaces.

Why no reference is ever left without its blob: say a run holds one at 3 or later, and the event
that brought it is before the end found at 2. Then the fold has it at 3, and the blob is marked. If
it is behind that end, its blob was put or renewed at most half a grace before the event, so at most
half a grace before 1: `BlobStore` answers for a generation that was younger than half a grace
then, so it is younger than a grace at 1 and is not looked at. Names are never used twice, so what
is put after 1 is never hit either. A handoff may still name what its run holds no more: that is why
a blob has to have been unheld for a grace, as this sweep has seen it itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from dalsegno.storage.blobs.store import Stored


class Sweep(msgspec.Struct, frozen=True, gc=False):
    """What one turn found: what may be deleted, and the counts and bytes of all there is.

    `unheld`: blobs that no run holds, those that still wait for their grace included. `replaced`:
    old generations, each with the newer one, which has to be looked at before the old one goes.
    """

    delete: tuple[Stored, ...]
    blobs: int
    bytes_stored: int
    unheld: int
    replaced: tuple[tuple[Stored, Stored], ...]


class Unheld:
    """Since when this owner has found blobs of one partition unheld. Forgotten with the owner."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._since_ms: dict[bytes, int] = {}

    def judge(self, listed: Sequence[Stored], marked: Collection[bytes], now_ms: int) -> Sweep:
        """`listed`: step 1. `marked`: digests from step 3. `now_ms`: when it was listed."""
        newest: dict[bytes, Stored] = {}
        for each in listed:
            known = newest.get(each.digest)
            if known is None or (known.at_ms, known.key) < (each.at_ms, each.key):
                newest[each.digest] = each
        unheld = {digest for digest in newest if digest not in marked}
        self._since_ms = {digest: self._since_ms.get(digest, now_ms) for digest in unheld}
        old = [each for each in listed if now_ms - each.at_ms > self._grace_ms]
        return Sweep(
            delete=tuple(each for each in old if self._unheld_for_long(each.digest, now_ms)),
            blobs=len(newest),
            bytes_stored=sum(each.size for each in listed),
            unheld=len(unheld),
            replaced=tuple(
                (each, newest[each.digest])
                for each in old
                if newest[each.digest] is not each
                and not self._unheld_for_long(each.digest, now_ms)
            ),
        )

    def _unheld_for_long(self, digest: bytes, now_ms: int) -> bool:
        since = self._since_ms.get(digest)
        return since is not None and now_ms - since > self._grace_ms


class Forgetting(msgspec.Struct, frozen=True, gc=False):
    """What becomes of the blobs of a run that was erased.

    `delete`: may go now. `left`: may not yet, since an event of another run may be on its way that
    counts on them; the last of them from `due_ms` on, 0 when none is left. `held`: digests that
    other runs hold; the value is theirs as well, and stays.
    """

    delete: tuple[Stored, ...]
    left: tuple[Stored, ...]
    due_ms: int
    held: tuple[bytes, ...]


def forgetting(
    listed: Iterable[Stored],
    digests: Collection[bytes],
    marked: Collection[bytes],
    now_ms: int,
    grace_ms: int,
) -> Forgetting:
    """`digests`: what the run held. `marked`: what the runs that are left hold. Unlike a sweep this
    does not wait for handoffs that may still name a blob: those of the run are void.
    """
    alone = {digest for digest in digests if digest not in marked}
    wanted = [each for each in listed if each.digest in alone]
    delete = tuple(each for each in wanted if now_ms - each.at_ms > grace_ms)
    left = tuple(each for each in wanted if now_ms - each.at_ms <= grace_ms)
    return Forgetting(
        delete=delete,
        left=left,
        due_ms=max((each.at_ms + grace_ms + 1 for each in left), default=0),
        held=tuple(sorted(digest for digest in digests if digest in marked)),
    )
