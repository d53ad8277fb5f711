"""When the group has confirmed our place: by a heartbeat, as of when it was asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError, RequestTimedOutError
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest

from dalsegno.streams.engine.membership import (
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Membership,
)

BEAT = HeartbeatRequest("group", 1, "member")
JOIN = JoinGroupRequest("group", 1, 1, "member", "", "consumer", [])


class Group:
    """A coordinator that answers with `code` after `takes_s`, or with an error; and the time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.code: int | KafkaError = 0
        self.takes_s = 0.0
        coordinator = SimpleNamespace(_send_req=self._answer)
        consumer: Any = SimpleNamespace(_coordinator=coordinator, _subscription=None)
        self.membership = Membership(consumer, lambda: self.now_s, False, pytest.fail)
        self.ask = coordinator._send_req

    async def _answer(self, _request: Any) -> SimpleNamespace:
        self.now_s += self.takes_s
        if isinstance(self.code, KafkaError):
            raise self.code
        return SimpleNamespace(error_code=self.code)

    def unconfirmed_s(self) -> float:
        return self.membership.unconfirmed_s(self.now_s)


async def test_only_a_heartbeat_confirms_our_place() -> None:
    group = Group()
    await group.ask(JOIN)
    assert group.unconfirmed_s() == float("inf"), "what is ours is not sorted out yet"
    await group.ask(BEAT)
    assert group.unconfirmed_s() == 0
    group.now_s += 5
    group.code = REBALANCE_IN_PROGRESS
    await group.ask(BEAT)
    assert group.unconfirmed_s() == 0, "ours until we have joined anew"


async def test_one_that_was_asleep_learns_nothing_from_an_answer_that_waited_for_it() -> None:
    group = Group()
    await group.ask(BEAT)
    group.takes_s = 30.0  # asleep between the question and the answer
    await group.ask(BEAT)
    assert group.unconfirmed_s() == 30.0


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER_ID, RequestTimedOutError()])
async def test_neither_an_error_nor_a_broker_that_is_away_confirms(code: int | KafkaError) -> None:
    group = Group()
    await group.ask(BEAT)
    group.now_s += 30
    group.code = code
    try:
        await group.ask(BEAT)
    except KafkaError:
        assert group.membership.silent_s(group.now_s) == 0, "that alone says nothing against it"
    assert group.unconfirmed_s() == 30


async def test_a_member_that_was_put_out_is_silent_although_its_broker_answers() -> None:
    """R126: on an idle topic nothing else would tell."""
    group = Group()
    await group.ask(BEAT)
    group.code = UNKNOWN_MEMBER_ID
    for _ in range(13):
        group.now_s += 1
        await group.ask(BEAT)
    assert group.membership.silent_s(group.now_s) == 13
    group.code = 0
    await group.ask(JOIN)
    assert group.membership.silent_s(group.now_s) == 0, "it has joined anew"
