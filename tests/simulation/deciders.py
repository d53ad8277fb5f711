"""People: they read packages and decide: late, twice, on old packages, in bulk; and one forges.

A decision goes through the intake's own check of its signature, by the policy in force then.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.simulation.clock import Process, Step, first_of
from tests.simulation.log import Entry, LogPartition, Producer

from dalsegno.schemas.control import DecisionKey, DecisionMade, DecisionType
from dalsegno.schemas.errors import DecodeError
from dalsegno.schemas.outputs import Escalation
from dalsegno.schemas.signing import check_decision, signature_header, signed_message
from dalsegno.streams.core.actions import Escalate
from dalsegno.streams.core.record import Unreadable
from dalsegno.streams.engine.signatures import verify_ed25519

if TYPE_CHECKING:
    from tests.simulation.world import World

TOPIC = "dalsegno.events"
SECRET = "4111-2222-3333"
NAMES = ("ana", "ben")
BULK_MAX = 4
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode


def private_key(name: str) -> Ed25519PrivateKey:
    """The same in every process."""
    return Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"."))


KEYS = {name: private_key(name) for name in (*NAMES, "eve")}
DECISION_KEYS = tuple(
    DecisionKey(
        key_id=f"{name}-1", public_key=KEYS[name].public_key().public_bytes_raw(), holder=name
    )
    for name in NAMES
)


class Signed(msgspec.Struct, frozen=True):
    """A decision as it stands in the log: the value that was signed, and the signature."""

    event: DecisionMade
    header: bytes

    def read(self, keys: tuple[DecisionKey, ...]) -> DecisionMade | Unreadable:
        """What the intake makes of it."""
        value = value_of(self.event)
        try:
            check_decision(self.event, TOPIC, value, self.header, keys=keys, verify=verify_ed25519)
        except DecodeError as error:
            return Unreadable(str(error.fault), error.detail, self.event.run_id)
        return self.event


def value_of(event: DecisionMade) -> bytes:
    return pack(event)


def sign(event: DecisionMade, signer: str) -> Signed:
    """Signed with the key of `signer`, whoever the decision says it is by."""
    signature = KEYS[signer].sign(signed_message(TOPIC, value_of(event)))
    return Signed(event, signature_header(f"{signer}-1", signature))


class People:
    """All who decide. `silent`: in this world nobody answers once it is calm."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng: Random = world.rng
        self.process = Process(world.scheduler, "people")
        self.packages: dict[str, Escalation] = {}
        self.made = 0
        for log in world.outputs["escalations"]:
            log.listeners.append(self._on_package)
        self.process.spawn(self._idle())

    def _on_package(self, log: LogPartition, entry: Entry) -> None:
        assert isinstance(entry.event, Escalate)
        package = entry.event.escalation
        if package.asked == "notice":
            return
        known = package.escalation_id in self.packages
        self.packages[package.escalation_id] = package
        if known and not self.world.network.calm:
            return
        odds = self.world.odds
        if self.rng.random() < odds.silent:
            return
        late = self.rng.choice((50, 1_000, 4_000, 15_000))
        self.process.spawn(self._answer(package), delay_ms=self.rng.randrange(1, late + 1))

    def _idle(self) -> Step:
        """Now and then somebody goes through what is open, or forges."""
        while not self.world.network.calm:
            yield self.rng.randrange(500, 6_000)
            if not self.packages:
                continue
            if self.rng.random() < 0.5:
                yield from self._bulk()
            else:
                yield from self._forge(self.rng.choice(list(self.packages.values())))

    def settle(self) -> Step:
        """In the calm everything that is open is decided, unless nobody answers in this world."""
        while self.world.odds.silent < 1:
            for package in list(self.packages.values()):
                if self.world.is_asking(package):
                    yield from self._answer(package)
            yield 3_000

    def _answer(self, package: Escalation) -> Step:
        """One package: mostly once, by what is offered; sometimes twice, or by what is not."""
        rng = self.rng
        event = self._decision(package, rng.choice(NAMES))
        yield from self._say(event)
        if self.world.network.calm:
            return
        again = rng.random()
        if again < 0.15:
            yield rng.randrange(1, 2_000)
            yield from self._say(event)
        elif again < 0.35:
            # The other one answers the same package.
            yield rng.randrange(1, 2_000)
            other = NAMES[1 - NAMES.index(event.decided_by)]
            yield from self._say(self._decision(package, other))

    def _bulk(self) -> Step:
        """A frozen list of packages, open or not by the time that each is judged."""
        some = self.rng.sample(
            list(self.packages.values()), min(len(self.packages), self.rng.randrange(1, BULK_MAX))
        )
        self.made += 1
        bulk = f"bulk-{self.made}"
        who = self.rng.choice(NAMES)
        frozen = [
            msgspec.structs.replace(self._decision(package, who), bulk_id=bulk) for package in some
        ]
        yield self.rng.choice((0, 500, 8_000))
        for event in frozen:
            yield from self._say(event)

    def _forge(self, package: Escalation) -> Step:
        """By another's name, with another digest, or for another run."""
        event = self._decision(package, self.rng.choice(NAMES))
        kind = self.rng.randrange(4)
        if kind == 0:
            yield from self._send(sign(event, "eve"), event.run_id)
        elif kind == 1:
            good = sign(event, event.decided_by)
            forged = msgspec.structs.replace(event, decision=DecisionType.APPROVE, reason="forged")
            yield from self._send(Signed(forged, good.header), event.run_id)
        elif kind == 2:
            yield from self._say(msgspec.structs.replace(event, package_digest=b"0" * 32))
        else:
            other = self.rng.choice(list(self.world.specs))
            yield from self._say(msgspec.structs.replace(event, run_id=other))

    def _decision(self, package: Escalation, who: str) -> DecisionMade:
        rng = self.rng
        offered = [option for option in package.options if not option.why_not]
        if rng.random() < 0.15 and not self.world.network.calm:
            offered = list(package.options)
        ending = {DecisionType.CANCEL, DecisionType.REJECT}
        weights = [1 if option.decision in ending else 4 for option in offered]
        [option] = rng.choices(offered, weights)
        self.made += 1
        return DecisionMade(
            run_id=package.run_id,
            decision_id=f"d{self.made}",
            escalation_id=package.escalation_id,
            decision=option.decision,
            decided_by=who,
            reason=f"seen {self.made}",
            step=package.step,
            ops=self._ops(option.decision, option.needs, who),
            package_digest=package.package_digest,
        )

    def _ops(self, decision: DecisionType, needs: tuple[str, ...], who: str) -> bytes:
        if decision is DecisionType.EDIT:
            needs = tuple(name for name in needs if name != "card")
            needs = tuple(self.rng.sample(needs, min(len(needs), 1)))
        if decision not in {DecisionType.EDIT, DecisionType.SUPPLY, DecisionType.SKIP}:
            return b""
        if not needs:
            return b""
        return pack([["set", [name], f"{name} by {who} {self.made}"] for name in needs])

    def _say(self, event: DecisionMade) -> Step:
        yield from self._send(sign(event, event.decided_by), event.run_id)

    def _send(self, signed: Signed, run_id: str) -> Step:
        """Until it is acknowledged: so it may be there twice."""
        world = self.world
        log = world.events[world.partition_of(run_id)]
        producer = Producer(world.network, self.process, idempotent=self.rng.random() < 0.7)
        for _ in range(20):
            ack: Any = yield first_of(world.scheduler, producer.send(log, run_id, signed), 5_000)
            if isinstance(ack, Entry):
                return
            producer.renew()
            yield 100
