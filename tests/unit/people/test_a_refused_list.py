"""A list of decisions that a broker refuses half-way: what is in the log stays on the list."""

from __future__ import annotations

from typing import cast

import pytest

from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.kafka.writer import NoKeyError, Writer
from dalsegno.ops.people.deciding import Decider, Round, Target
from dalsegno.ops.people.keys import SigningKey
from dalsegno.schemas.control import DecisionType
from dalsegno.streams.client.refused import BrokerRefused, Cause
from dalsegno.streams.engine.settings import EngineSettings

SETTINGS = EngineSettings(bootstrap_servers="127.0.0.1:1", mac_keys="k1:" + "01" * 32)
REFUSED = BrokerRefused(Cause.RIGHTS, "", "t")


class Log:
    """Takes so many records, then refuses them, and does not let itself be read."""

    def __init__(self, takes: int, *, keys: int = 9) -> None:
        self.takes = takes
        self.keys = keys
        self.taken = 0

    def key(self, partition: int) -> str:
        if partition >= self.keys:
            raise NoKeyError(("k0",))
        return "k1"

    def append(self, *_: object) -> int:
        if self.taken == self.takes:
            raise REFUSED
        self.taken += 1
        return self.taken

    def offset_at(self, *_: object) -> int:
        raise REFUSED


def decide(log: Log) -> Round:
    decider = Decider(
        SETTINGS, cast("Reader", log), cast("Writer", log), SigningKey.new("me", "Ada")
    )
    targets = [Target(f"r{number}", f"r{number}", "s", number, b"") for number in range(3)]
    return decider.decide_all(targets, DecisionType.CANCEL, "x", ops=b"", bulk_id="b", limit_s=0.0)


def test_what_is_sent_what_is_not_and_why_is_said() -> None:
    done = decide(Log(2))
    assert [each.escalation_id for each in done.unheard] == ["r0", "r1"]
    assert [each.escalation_id for each in done.unsent] == ["r2"]
    assert done.failure is REFUSED


def test_a_partition_without_a_key_in_force_is_found_before_anything_is_sent() -> None:
    log = Log(3, keys=2)
    with pytest.raises(NoKeyError, match="k0"):
        decide(log)
    assert log.taken == 0
