"""When what is posted to a target next: backoff, refusals, gone, given up. No clock runs here."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.agents.webhooks.packages import package

from dalsegno.schemas.control import Webhook
from dalsegno.streams.agents.webhooks.message import message_of
from dalsegno.streams.agents.webhooks.posting import Attempt, Posted
from dalsegno.streams.agents.webhooks.target import REFUSALS_MAX, Target, Waiting

HOOK = Webhook(
    name="desk", url="https://desk/in", key_id="k", retry_initial_ms=1_000, retry_max_ms=8_000
)
TROUBLE = Attempt(Posted.TROUBLE)
REFUSED = Attempt(Posted.REFUSED)


def target(count: int = 1, jitter: float = 1.0, **hook: object) -> Target:
    made = Target(msgspec.structs.replace(HOOK, **hook), lambda: jitter)
    for i in range(count):
        asked = package(i, at_ms=1_000 * i)
        made.add(Waiting((0, i), asked, message_of(asked)))
    return made


def due(of: Target, now_s: float) -> Waiting:
    found = of.next(now_s)
    assert found is not None
    return found


def test_the_oldest_goes_first() -> None:
    made = target(3)
    made.drop((0, 0))
    assert due(made, 0).place == (0, 1)


@pytest.mark.parametrize(("jitter", "share"), [(0.0, 0.5), (1.0, 1.0)])
def test_a_target_in_trouble_rests_longer_each_time_up_to_its_bound(
    jitter: float, share: float
) -> None:
    made, now_s = target(2, jitter), 0.0
    for bound_s in (1, 2, 4, 8, 8):
        assert not made.heard(due(made, now_s), TROUBLE, now_s)
        rest_s = bound_s * share
        assert made.next(now_s + rest_s - 0.01) is None
        now_s += rest_s
    assert due(made, now_s).place == (0, 0), "the oldest is tried again, nothing else in between"


def test_a_success_ends_the_rest() -> None:
    made = target(2)
    made.heard(due(made, 0), TROUBLE, 0)
    made.heard(due(made, 1), Attempt(Posted.DELIVERED), 1)
    made.drop((0, 0))
    made.heard(due(made, 1), TROUBLE, 1)
    assert made.next(1.99) is None
    assert made.next(2) is not None, "the next failure is a first one"


def test_what_the_target_asks_for_counts_beyond_our_own_wait() -> None:
    made = target()
    made.heard(due(made, 0), Attempt(Posted.TROUBLE, retry_after_s=60), 0)
    assert made.next(59) is None
    assert made.next(60) is not None


def test_a_message_that_is_refused_holds_up_no_other_and_ends() -> None:
    made, now_s = target(2), 0.0
    first = due(made, now_s)
    assert not made.heard(first, REFUSED, now_s)
    assert due(made, now_s).place == (0, 1)
    made.drop((0, 1))
    for _ in range(REFUSALS_MAX - 2):
        now_s = first.due_s
        assert not made.heard(due(made, now_s), REFUSED, now_s)
    now_s = first.due_s
    assert made.heard(due(made, now_s), REFUSED, now_s)


def test_attempts_of_one_message_are_bounded() -> None:
    made = target(attempts_max=3)
    ends = [made.heard(due(made, now_s), TROUBLE, now_s) for now_s in (0, 100, 200)]
    assert ends == [False, False, True]


def test_a_target_that_is_gone_hears_nothing_more() -> None:
    made = target(2)
    assert not made.heard(due(made, 0), Attempt(Posted.GONE), 0)
    assert made.next(1e9) is None
    assert len(made) == 2, "what waits is still seen"


def test_the_age_is_that_of_the_oldest() -> None:
    made = target(3)
    assert made.oldest_ms == 0
    made.drop((0, 0))
    assert made.oldest_ms == 1_000
    assert target(0).oldest_ms is None
