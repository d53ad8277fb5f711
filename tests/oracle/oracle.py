"""What Kafka holds, judged against the fold of the log: each method yields what is wrong.

P1: every event of the log has one outcome. P2: the changelog is the fold of the log. Outputs: the
topics hold what the fold puts out, in order, without a gap, and a repeat has the first one's bytes
(P3). P4: a completed step got no new epoch, and no epoch of a step was given out by two handoffs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile
from typing import Final

from confluent_kafka import Message
from tests.integration.engine.harness import Lab

from dalsegno.schemas import headers
from dalsegno.schemas.codec import decode, encode
from dalsegno.schemas.events import EffectConfirmed, EffectIntended, RunStarted
from dalsegno.schemas.outputs import Handoff, Outcome, StepState, Transition
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine.encoding import Encoder, OutRecord
from dalsegno.streams.engine.fold import Fold
from dalsegno.streams.engine.restore import sequence_of
from dalsegno.streams.engine.topics_admin import TopicAdmin
from dalsegno.streams.engine.verify import Verifier

SIZE_MAX: Final = 1_000_000


class Recording(Partition):
    """The fold, and all that it put out."""

    def apply(self, record: Record) -> list[Output]:
        outputs = super().apply(record)
        if not hasattr(self, "put_out"):
            self.put_out: list[Output] = []
        self.put_out.extend(outputs)
        return outputs


class KeepingVerifier(Verifier):
    """Keeps the folds that it compared."""

    folds: dict[int, Recording]

    def fold(self, partition: int, end: int | None = None) -> tuple[Fold, int]:
        fold, events = super().fold(partition, end)
        assert isinstance(fold, Recording)
        self.folds[partition] = fold
        return fold, events


class Oracle:
    """Judges one lab at rest. `rubbish`: how many records of the log are known to be no events.

    `queues`: those that handoffs may be in. `fold`: what the log is folded with. `folds`, by
    partition, are those that were compared, after `problems` has been read.
    """

    def __init__(
        self,
        lab: Lab,
        *,
        rubbish: int = 0,
        queues: tuple[str, ...] = ("default",),
        fold: type[Recording] = Recording,
    ) -> None:
        self._lab = lab
        self._rubbish = rubbish
        self._fold = fold
        self.folds: dict[int, Recording] = {}
        self.outcomes: Counter[str] = Counter()
        facts = TopicAdmin(lab.settings).facts()
        topics = lab.topics
        self._queues = tuple(map(topics.queue, queues))
        self._ordered = (
            topics.transitions,
            *self._queues,
            topics.escalations,
            topics.dead_letters,
        )
        self._keyed = {name: facts[name].partitions for name in (topics.control, topics.faults)}
        self.found = {name: self._kept(name) for name in self._ordered}
        self._omitted: list[str] = []
        self.events = 0
        self.outputs = 0
        self.repeats = 0

    def _kept(self, topic: str) -> dict[int, list[tuple[Sequence, Message]]]:
        return self._lab.ordered(topic)

    def problems(self) -> Iterator[str]:
        """All that is wrong."""
        verifier = KeepingVerifier(self._lab.settings, self._fold, self._lab.partitions)
        verifier.folds = {}
        try:
            yield from self._state(verifier)
        finally:
            verifier.close()
        self.folds = verifier.folds
        expected = self._expected(verifier.folds)
        yield from self._omitted
        for topic in self._ordered:
            yield from self._in_order(topic, expected.get(topic, []))
        for topic in self._keyed:
            yield from self._by_key(topic, expected.get(topic, []))
        yield from self._completed_steps()

    def _state(self, verifier: KeepingVerifier) -> Iterator[str]:
        for partition in range(self._lab.partitions):
            report = verifier.verify(partition)
            end = self._lab.end(self._lab.topics.events, partition)
            self.events += report.events
            if report.position != end or report.events != end:
                yield f"P1: partition {partition}: {end} events, {report.events} applied"
            if sum(report.counts.values()) + report.waiting != report.events:
                yield f"P1: partition {partition}: outcomes {report.counts} of {report.events}"
            self.outcomes.update(report.counts)
            yield from (f"P2: partition {partition}: {each}" for each in report.differences)
        dead = self.outcomes[Outcome.DEAD_LETTERED]
        if dead != self._rubbish:
            yield f"P1: {dead} dead letters, {self._rubbish} records were no events"

    def _expected(self, folds: dict[int, Recording]) -> dict[str, list[OutRecord]]:
        records: dict[str, list[OutRecord]] = {}
        for partition, fold in folds.items():
            encoder = Encoder(
                self._lab.topics, partition, self._keyed,
                size_max=lambda _: SIZE_MAX, encode=encode, omitted=self._omit,
            )  # fmt: skip
            for output in getattr(fold, "put_out", []):
                record = encoder.record(output)
                records.setdefault(record.topic, []).append(record)
        self.outputs = sum(map(len, records.values()))
        return records

    def _omit(self, channel: str, reason: str) -> None:
        self._omitted.append(f"outputs: a value of {channel} was left out: {reason}")

    def _in_order(self, topic: str, expected: list[OutRecord]) -> Iterator[str]:
        for partition, kept in self.found[topic].items():
            want = [
                (sequence_of(each.headers), each.key, each.value)
                for each in expected
                if each.partition == partition
            ]
            have = [(seq, message.key() or b"", message.value()) for seq, message in kept]
            self.repeats += self._lab.end(topic, partition) - len(kept)
            if have != want:
                pairs = zip(have, want, strict=False)
                same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
                yield f"outputs: {topic}[{partition}]: {same} of {len(want)} as put out"

    def _by_key(self, topic: str, expected: list[OutRecord]) -> Iterator[str]:
        want = {_identity(each.headers): each.value for each in expected}
        have: dict[tuple[bytes, bytes], bytes] = {}
        for partition in range(self._keyed[topic]):
            for message in self._lab.read(topic, partition):
                if topic == self._lab.topics.faults and not _by_a_fold(message.headers()):
                    continue  # a tick, or an operator's order: no output of a partition
                who = _identity(message.headers())
                if have.setdefault(who, message.value()) != message.value():
                    yield f"outputs: {topic}: a repeat of {who} has other bytes"
        if have != want:
            yield f"outputs: {topic}: {len(have)} of {len(want)}, or other bytes"

    def _completed_steps(self) -> Iterator[str]:
        completed: dict[tuple[str, str], int] = {}
        for sequence, change in self.changes():
            for step in _opened_again(change):
                completed.pop((change.run_id, step), None)
            # A compensation that was out while more became known goes again and is done then.
            for each in change.changes:
                if each.after is StepState.COMPLETED and each.before is not StepState.COMPLETED:
                    if (change.run_id, each.step) in completed:
                        yield f"P4: {change.run_id}/{each.step} was completed twice"
                    completed[change.run_id, each.step] = sequence.offset
        epochs: dict[tuple[str, str], int] = {}
        for kept in (kept for topic in self._queues for kept in self.found[topic].values()):
            for sequence, message in kept:
                handoff = decode(message.value())
                assert isinstance(handoff, Handoff)
                step = handoff.run_id, handoff.step
                if handoff.epoch <= epochs.get(step, 0):
                    yield f"P4: {step}: epoch {handoff.epoch} after epoch {epochs[step]}"
                epochs[step] = handoff.epoch
                done = completed.get((handoff.run_id, handoff.step))
                if done is not None and sequence.offset > done:
                    where = f"{handoff.run_id}/{handoff.step}"
                    yield f"P4: {where}: epoch {handoff.epoch} after its end"

    def changes(self) -> Iterator[tuple[Sequence, Transition]]:
        """All transitions, partition by partition."""
        for kept in self.found[self._lab.topics.transitions].values():
            for sequence, message in kept:
                change = decode(message.value())
                assert isinstance(change, Transition)
                yield sequence, change

    def started(self) -> set[str]:
        """Run ids of the starts in the log."""
        found = set()
        for partition in range(self._lab.partitions):
            for message in self._lab.read(self._lab.topics.events, partition):
                event = decode(message.value())
                if isinstance(event, RunStarted):
                    found.add(event.run_id)
        return found


def _opened_again(change: Transition) -> list[str]:
    """Compensations that a late report of an effect opens again: there is more to take back."""
    if change.cause not in (EffectIntended.__name__, EffectConfirmed.__name__):
        return []
    pairs = [(each.before, each.after) for each in change.changes]
    if (StepState.COMPENSATED, StepState.COMPENSATING) not in pairs:
        return []
    return [each.step for each in change.changes if each.before is StepState.COMPLETED]


def _by_a_fold(found: list[tuple[str, bytes]] | None) -> bool:
    return any(name == headers.SEQUENCE for name, _ in found or [])


def _identity(found: list[tuple[str, bytes]] | None) -> tuple[bytes, bytes]:
    named = dict(found or [])
    return named.get(headers.SOURCE, b""), named[headers.SEQUENCE]
