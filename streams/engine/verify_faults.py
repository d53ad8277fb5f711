"""Folds a partition of the faults topic from its first record and compares with its changelog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dalsegno.schemas.faults_intake import FaultsIntake
from dalsegno.streams.core.faultpoint.actors import FaultPoints
from dalsegno.streams.engine.faults_records import fault_record
from dalsegno.streams.engine.logread import LogReader
from dalsegno.streams.engine.raw import raw_fault
from dalsegno.streams.engine.settings import EngineSettings
from dalsegno.streams.engine.verify import PartitionReport, differences, saved_parts


class FaultsVerifier:
    """Verifies the actors of one prefix. Blocking; needs the MAC keys of the engines.

    `partitions`: of the events topic, and of the faults topic.
    """

    def __init__(self, settings: EngineSettings, partitions: int) -> None:
        self._settings = settings
        self._partitions = partitions
        self._reader = LogReader(settings)

    def verify(self, number: int) -> PartitionReport:
        """Fold and compare one partition; without its first records there is nothing to fold."""
        topics = self._settings.topics
        saved = saved_parts(self._reader, topics.faults_changelog, number)
        if not saved:
            return PartitionReport(number, 0, 0, 0, (), log="faults")
        keys = self._settings.keyring.ids
        kept = FaultPoints.restore(number, self._partitions, saved.items(), mac_keys=keys)
        low, _ = self._reader.bounds(topics.faults, number)
        if low > 0:
            return PartitionReport(
                number,
                kept.position,
                0,
                len(saved),
                (),
                log="faults",
                begins_at=low,
                compared="",
                detail="what came before is kept nowhere",
            )
        fold = self.fold(number, kept.position)
        folded = fold.parts()
        return PartitionReport(
            number,
            kept.position,
            sum(fold.counts.values()),
            len(folded),
            tuple(differences(folded, saved)),
            {str(outcome): count for outcome, count in fold.counts.items()},
            log="faults",
        )

    def fold(self, number: int, end: int) -> FaultPoints:
        """The state after all records before `end`."""
        topic = self._settings.topics.faults
        intake = FaultsIntake(topic, self._partitions, self._settings.keyring)
        fold = FaultPoints(number, self._partitions, mac_keys=self._settings.keyring.ids)
        for message in self._reader.read(topic, number, 0, end):
            fold.apply(fault_record(intake, fold, raw_fault(message)))
        return fold

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()


def verify_faults(
    settings: EngineSettings, partitions: int, only: Iterable[int] = ()
) -> Iterator[PartitionReport]:
    """Verify all partitions, or only some, one after the other."""
    verifier = FaultsVerifier(settings, partitions)
    try:
        for number in tuple(only) or range(partitions):
            yield verifier.verify(number)
    finally:
        verifier.close()
