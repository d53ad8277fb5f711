"""The reconciliation example: what corrects a ledger, and the table that judges it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from examples.order.ledger import Entry
from examples.reconciliation.facts import Facts, Log, judge
from examples.reconciliation.rules import (
    KINDS,
    Correction,
    Line,
    accounts,
    corrections,
    ledger,
    match,
    statement,
)

from dalsegno.client import RunState
from dalsegno.streams.core.effects import effect_key, recovery_key

DONE, BACK = accounts(2, 3)


def key(account: str, number: int) -> str:
    return effect_key(recovery_key(account, "book"), "book", number)


def booked(account: str) -> list[Entry]:
    return [
        Entry("do", key(account, number), f"{account}/{each.reference}", 1, each.cents)
        for number, each in enumerate(corrections(account))
    ]


def closed(account: str, cents: int = 0) -> Entry:
    balance = sum(line.cents for line in statement(account)) + cents
    return Entry("do", f"close {account}", f"{account}/closed", 1, balance)


def undone(entry: Entry) -> Entry:
    return Entry("undo", entry.key, BACK, 1, entry.amount, "undo " + entry.key)


LOG = Log(
    ended={DONE: RunState.SUCCEEDED, BACK: RunState.COMPENSATED},
    asked=frozenset({DONE, BACK}),
    unknown=frozenset({key(DONE, 0), key(BACK, 3)}),
    decided=Counter(retry=1, compensate=1),
)
BOOKS = [*booked(DONE), booked(BACK)[0], undone(booked(BACK)[0])]


def judged(log: Log = LOG, books: list[Entry] | None = None, balance: int = 0) -> Facts:
    return judge(log, BOOKS if books is None else books, [closed(DONE, balance)], [DONE, BACK])


def test_every_kind_of_difference_is_corrected_to_the_cent() -> None:
    kinds = set()
    for account in accounts(200, 5):
        found = corrections(account)
        kinds |= {each.kind for each in found}
        in_ledger = sum(line.cents for line in ledger(account))
        assert in_ledger + sum(each.cents for each in found) == sum(
            line.cents for line in statement(account)
        )
        assert 1 <= len(found) <= 4
    assert kinds == set(KINDS)


def test_a_debit_that_the_ledger_lacks_is_corrected() -> None:
    assert match([Line("a", -5), Line("b", 7)], [Line("b", 7)]) == [
        Correction("a", "not in the ledger", -5)
    ]
    assert match([], [Line("c", 3)]) == [Correction("c", "another amount", -3)]


def test_a_right_day_is_right() -> None:
    facts = judged()
    assert facts.faults == ()
    assert (facts.reconciled, facts.taken_back, facts.asked) == (1, 1, 2)
    assert (facts.unknown_done, facts.unknown_not_done) == (1, 1)
    assert facts.bank == facts.books + facts.left_open


def test_what_is_wrong_turns_the_table_red() -> None:
    first = booked(DONE)[0]
    wrong = {
        "booked twice under two keys": judged(books=[*BOOKS, first._replace(key="other")]),
        "booked twice under one key": judged(books=[*BOOKS, first]),
        "a booking is missing": judged(books=BOOKS[1:]),
        "another amount": judged(books=[first._replace(amount=first.amount + 1), *BOOKS[1:]]),
        "under a key that is not its own": judged(books=[first._replace(key="x"), *BOOKS[1:]]),
        "taken back, and it stands": judged(books=BOOKS[:-1]),
        "undone twice": judged(books=[*BOOKS, BOOKS[-1]]),
        "closed with another balance": judged(balance=1),
        "expired": judged(replace(LOG, ended={**LOG.ended, DONE: RunState.EXPIRED})),
        "without an end": judged(replace(LOG, ended={BACK: RunState.COMPENSATED})),
        "taken back and said to be reconciled": judged(
            replace(LOG, ended=dict.fromkeys((DONE, BACK), RunState.SUCCEEDED))
        ),
    }
    assert [what for what, facts in wrong.items() if facts.right] == []
