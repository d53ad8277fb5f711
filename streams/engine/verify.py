"""Folds a partition's log from its first event and compares the state with the changelog.

The log is the truth and the changelog a cache of it: any difference is a fault of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dalsegno.schemas.intake import Intake
from dalsegno.streams.core.meaning import as_now
from dalsegno.streams.core.state_codec import StateCorrupt
from dalsegno.streams.engine.errors import PositionLostError
from dalsegno.streams.engine.fold import Fold, FoldFactory
from dalsegno.streams.engine.header_names import LenientHeaders
from dalsegno.streams.engine.logread import LogReader
from dalsegno.streams.engine.raw import raw_event
from dalsegno.streams.engine.reader import EventReader
from dalsegno.streams.engine.restore import CLAIM_KEY
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.signatures import verify_ed25519


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What was found. `log`: events, or faults. `differences`: part key, in hex with its text, and
    what is wrong with it. `compared`: what was folded, the `log` or the `archive` up to event
    `archived_to` and the log behind it; empty if nothing was compared, as the log `begins_at` there
    now and `detail` says. `erased`: how many of the records say no more what they were; `detail` is
    what was not compared for that.
    """

    partition: int
    position: int
    events: int
    parts: int
    differences: tuple[str, ...]
    counts: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    log: str = "events"
    begins_at: int = 0
    compared: str = "log"
    archived_to: int = 0
    erased: int = 0
    detail: str = ""

    @property
    def right(self) -> bool:
        """Whether nothing speaks against the changelog being the fold of the log. Nothing does
        where nothing was compared.
        """
        return not self.differences


class Verifier:
    """Verifies partitions of one prefix. Blocking; needs the MAC keys of the engines."""

    def __init__(self, settings: EngineSettings, folds: FoldFactory, partitions: int) -> None:
        self._settings = settings
        self._folds = folds
        self._intake = Intake(settings.topics.events, partitions, settings.keyring, verify_ed25519)
        self._reader = LogReader(settings)
        self._lenient = LenientHeaders(settings)

    def verify(self, partition: int) -> PartitionReport:
        """Fold and compare one partition. Raises `PositionLostError` if its log does not begin at
        0.
        """
        saved = self.changelog(partition)
        if not saved:
            return PartitionReport(partition, 0, 0, 0, ())
        position = self._folds.restore(partition, saved.items()).position
        fold, events = self.fold(partition, position)
        folded = fold.parts()
        return PartitionReport(
            partition,
            position,
            events,
            len(folded),
            tuple(differences(folded, saved)),
            {str(outcome): count for outcome, count in fold.counts.items()},
            fold.waiting,
        )

    def changelog(self, partition: int) -> dict[bytes, bytes]:
        """The parts of the last committed checkpoint."""
        return saved_parts(self._reader, self._settings.topics.runs_changelog, partition)

    def fold(self, partition: int, end: int | None = None) -> tuple[Fold, int]:
        """Fold the log from its beginning up to `end`: the state, and how many records that
        took.
        """
        topic = self._settings.topics.events
        low, _ = self._reader.bounds(topic, partition)
        if low > 0:
            raise PositionLostError(
                partition,
                "log_cut",
                f"the log begins at {low}: a fold from its start is no longer possible",
            )
        fold = self._folds(partition, mac_keys=self._settings.keyring.ids, topic=topic)
        reader = EventReader(self._intake, partition)
        events = 0
        raw = (
            raw_event(each, self._lenient) for each in self._reader.read(topic, partition, 0, end)
        )
        for record in reader.read(fold, raw):
            fold.apply(record)
            events += 1
        return fold, events

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()


def saved_parts(reader: LogReader, changelog: str, partition: int) -> dict[bytes, bytes]:
    """The parts of the last committed checkpoint."""
    parts: dict[bytes, bytes] = {}
    for message in reader.read(changelog, partition):
        key, value = message.key() or b"", message.value()
        if value is None:
            parts.pop(key, None)
        elif key != CLAIM_KEY:
            parts[key] = value
    return parts


def differences(folded: dict[bytes, bytes], saved: dict[bytes, bytes]) -> Iterator[str]:
    """What is not the same, one line each. What was saved by another release is, in other bytes."""
    for key in sorted(folded.keys() | saved.keys()):
        have, want = saved.get(key), folded.get(key)
        if have != want and (what := _unlike(key, have, want)):
            yield f"{key.hex()} ({key.decode(errors='replace')!r}): {what}"


def _unlike(key: bytes, have: bytes | None, want: bytes | None) -> str:
    """In what two parts differ that are not the same bytes; empty if they mean the same."""
    if have is None:
        return "missing in the changelog"
    if want is None:
        return "in the changelog, not in the fold"
    what = f"changelog {len(have)} bytes, fold {len(want)} bytes, not the same"
    try:
        return "" if as_now(key, have) == as_now(key, want) else what
    except StateCorrupt as error:
        return f"{what}: {error}"


def verify(
    settings: EngineSettings, folds: FoldFactory, partitions: int, only: Iterable[int] = ()
) -> Iterator[PartitionReport]:
    """Verify all partitions, or only some, one after the other, by the log alone."""
    verifier = Verifier(settings, folds, partitions)
    try:
        for partition in tuple(only) or range(partitions):
            yield verifier.verify(partition)
    finally:
        verifier.close()
