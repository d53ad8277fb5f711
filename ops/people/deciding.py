"""Makes decisions: signs, appends, and waits for what the fold says of each."""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dalsegno.ops.kafka.reader import Reader, ReadError
from dalsegno.ops.kafka.writer import AppendError, Writer
from dalsegno.ops.people.keys import SigningKey
from dalsegno.schemas import codec, headers, values
from dalsegno.schemas.control import DecisionMade, DecisionType
from dalsegno.schemas.outputs import DeadLetter, Escalation, Outcome, Transition
from dalsegno.streams.client.refused import BrokerRefused
from dalsegno.streams.engine.settings import EngineSettings

_LOOK_S = 0.2


class NoOutcomeError(Exception):
    """The decision is in the log, and nothing has been heard of it yet."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a decision. `taken`: it was the first, and it was applied."""

    escalation_id: str
    taken: bool
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Target:
    """What a decision is bound to: one line of a frozen list, or one package."""

    escalation_id: str
    run_id: str
    step: str
    partition: int
    package_digest: bytes

    @classmethod
    def of(cls, package: Escalation) -> "Target":
        """The package as it is."""
        return cls(
            package.escalation_id,
            package.run_id,
            package.step,
            package.partition,
            package.package_digest,
        )


@dataclass(slots=True)
class Round:
    """What became of a list of decisions. `failure`: why the rest has no outcome, or None.

    `unheard` are in the log; `unsent` are not.
    """

    verdicts: list[Verdict]
    unheard: list[Target]
    unsent: list[Target]
    failure: NoOutcomeError | AppendError | ReadError | BrokerRefused | None = None


def operations(fields: Mapping[str, values.Value]) -> bytes:
    """Context operations that set these fields; empty bytes for none."""
    if not fields:
        return b""
    return values.pack([["set", [name], value] for name, value in fields.items()])


class Decider:
    """Decides in the name of one key's holder."""

    def __init__(
        self, settings: EngineSettings, reader: Reader, writer: Writer, key: SigningKey
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._writer = writer
        self._key = key

    def append(
        self, target: Target, decision: DecisionType, reason: str, *, ops: bytes, bulk_id: str = ""
    ) -> int:
        """Appends one decision; returns its offset. Raises AppendError, and as `Writer.key`."""
        mac_key = self._writer.key(target.partition)
        event = DecisionMade(
            source="cli",
            sent_at_ms=time.time_ns() // 1_000_000,
            run_id=target.run_id,
            decision_id=secrets.token_hex(16),
            escalation_id=target.escalation_id,
            decision=decision,
            decided_by=self._key.holder,
            reason=reason,
            step=target.step,
            ops=ops,
            package_digest=target.package_digest,
            bulk_id=bulk_id,
        )
        topic, value = self._settings.topics.events, codec.encode(event)
        signed = [
            (headers.MAC, self._settings.keyring.sign(mac_key, topic, target.partition, value)),
            (headers.SIGNATURE, self._key.sign(topic, value)),
        ]
        return self._writer.append(topic, target.partition, target.run_id.encode(), value, signed)

    def decide_all(
        self,
        targets: Sequence[Target],
        decision: DecisionType,
        reason: str,
        *,
        ops: bytes,
        bulk_id: str,
        limit_s: float,
    ) -> Round:
        """Each on its own: what stops it half-way takes nothing away from the rest.

        Raises as `Writer.key`, before anything is appended.
        """
        for partition in sorted({target.partition for target in targets}):
            self._writer.key(partition)
        done = Round([], [], list(targets))
        appended: dict[tuple[int, int], Target] = {}
        try:
            for target in targets:
                offset = self.append(target, decision, reason, ops=ops, bulk_id=bulk_id)
                appended[target.partition, offset] = target
                done.unsent.pop(0)
        except (AppendError, BrokerRefused) as error:
            done.failure = error
        try:
            done.verdicts.extend(self.await_verdicts(appended, limit_s))
        except (NoOutcomeError, ReadError, BrokerRefused) as error:
            done.failure = done.failure or error
        heard = {verdict.escalation_id for verdict in done.verdicts}
        done.unheard = [t for t in appended.values() if t.escalation_id not in heard]
        return done

    def await_verdicts(
        self, appended: Mapping[tuple[int, int], Target], limit_s: float
    ) -> Iterator[Verdict]:
        """What became of decisions by (partition, offset), as it is heard of.

        Raises NoOutcomeError when the limit is over before all have been heard of, and ReadError.
        """
        left = dict(appended)
        places: dict[tuple[str, int], int] = {}
        topics = self._settings.topics
        for partition, _ in appended:
            for topic in (topics.transitions, topics.dead_letters):
                if (topic, partition) not in places:
                    # Nothing that was put out before the last few minutes can be about these.
                    since = (time.time_ns() // 1_000_000) - 600_000
                    places[topic, partition] = self._reader.offset_at(topic, partition, since)
        limit = time.monotonic() + limit_s
        while left:
            for (topic, partition), start in list(places.items()):
                for record in self._reader.read(topic, partition, start):
                    places[topic, partition] = record.offset + 1
                    heard = _heard(record.value, record.headers)
                    target = None if heard is None else left.pop((partition, heard[0]), None)
                    if heard is not None and target is not None:
                        yield Verdict(target.escalation_id, *heard[1:])
            if left and time.monotonic() > limit:
                raise NoOutcomeError(
                    f"{len(left)} decision(s) are in the log and have no outcome after"
                    f" {limit_s:.0f} s: is an engine up? See `dalsegno replay RUN`"
                )
            if left:
                time.sleep(_LOOK_S)


def _heard(
    value: bytes | None, found: tuple[tuple[str, bytes], ...]
) -> tuple[int, bool, str, str] | None:
    """(offset of the decision, whether it was taken, reason, detail), if a record says so."""
    markers = [each for name, each in found if name == headers.DEAD_LETTER]
    record = codec.decode_if(msgspec.Struct, markers[-1] if markers else value)
    if isinstance(record, DeadLetter) and record.kind == "DecisionMade":
        return record.offset, False, record.reason, record.detail
    if isinstance(record, Transition) and record.cause == "DecisionMade":
        taken = record.outcome is Outcome.APPLIED
        return record.cause_offset, taken, record.reason, record.detail
    return None
