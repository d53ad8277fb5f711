"""A rolling upgrade: new code everywhere under the old rules, then the marker in the log.

The second rules version exists only here: under it handoffs may be started one second longer. And
the old code saves runs without the last field of their headers and rows, as if it came since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from tests.simulation.clock import Process, Step

from dalsegno.schemas.control import RulesChanged
from dalsegno.streams.core.actions import Output
from dalsegno.streams.core.partition import Partition
from dalsegno.streams.core.record import Record
from dalsegno.streams.core.state_codec import KIND_RUN, PREFIX_BYTES, read_prefix

if TYPE_CHECKING:
    from tests.simulation.world import World

OLD_CODE: Final = (1,)
NEW_CODE: Final = (1, 2)
LONGER_MS: Final = 1_000


_decode: Final = msgspec.msgpack.Decoder(list[list[object] | None]).decode
_decode_head: Final = msgspec.msgpack.Decoder(list[object]).decode
_encode: Final = msgspec.msgpack.Encoder().encode


Captured = list[tuple[bytes, bytes | None]]


def saved_by(rules_known: tuple[int, ...], parts: Captured) -> Captured:
    """What a checkpoint of this code writes."""
    if rules_known == NEW_CODE:
        return parts
    return [(key, value and _as_before(key, value)) for key, value in parts]


def _as_before(key: bytes, value: bytes) -> bytes:
    if key[:1] == b"s":
        return _encode([row and _without_last(row) for row in _decode(value)])
    if key[:1] != b"r" or read_prefix(value).kind != KIND_RUN:
        return value
    return value[:PREFIX_BYTES] + _encode(_without_last(_decode_head(value[PREFIX_BYTES:])))


def _without_last(fields: list[object]) -> list[object]:
    return fields if fields[-1] else fields[:-1]


class TwoRules(Partition):
    """Code that knows rules 1 and 2, and decides by those in force at each record."""

    def apply(self, record: Record) -> list[Output]:
        if self.rules < 2:
            return super().apply(record)
        now = self._now
        policy = now.policy
        longer = policy.start_limit_ms + LONGER_MS
        now.policy = changed = msgspec.structs.replace(policy, start_limit_ms=longer)
        try:
            return super().apply(record)
        finally:
            if now.policy is changed:
                now.policy = policy


def code_for(rules_known: tuple[int, ...]) -> type[Partition]:
    return TwoRules if rules_known == NEW_CODE else Partition


class Upgrade:
    """Restarts one engine after the other with new code, then activates the rules."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.process = Process(world.scheduler, "operator")
        self.done = False
        self.process.spawn(self.roll(), delay_ms=world.rng.randrange(0, world.setup.chaos_ms))

    def roll(self) -> Step:
        yield from self.replace_code()
        while not self.everyone_knows():
            yield 500
        yield from self.activate()
        self.done = True

    def replace_code(self) -> Step:
        """One engine after the other."""
        world = self.world
        for name in list(world.code):
            world.code[name] = NEW_CODE
            for engine in list(world.engines):
                if engine.process.name == name:
                    engine.process.kill()
            yield world.rng.randrange(100, 4_000)

    def activate(self) -> Step:
        """The marker, in every partition."""
        for log in self.world.events:
            marker = RulesChanged(partition=log.number, number=1, rules_version=2)
            log.append("", marker, writer="operator")
            yield self.world.network.delay()

    def everyone_knows(self) -> bool:
        """What the owners' claims say."""
        return all(engine.rules_known == NEW_CODE for engine in self.world.engines)
