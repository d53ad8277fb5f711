"""What is settled towards a target: kept in an offset, read back, repeats known as such."""

from __future__ import annotations

import random

import pytest

from dalsegno.streams.agents.webhooks.ledger import SPAN_MAX, Ledger, LedgerError

METADATA_BYTES_MAX = 4_096
"""What a broker takes with an offset by default."""


def reloaded(ledger: Ledger) -> Ledger:
    return Ledger.load(*ledger.save())


def test_the_offset_stays_at_the_first_package_that_is_not_settled() -> None:
    ledger = Ledger(10)
    assert [ledger.read(10 + i, i + 1) for i in range(4)] == [True] * 4
    ledger.settle(11)
    ledger.settle(13)
    assert ledger.base == 10
    ledger.settle(10)
    assert ledger.base == 12


def test_what_is_settled_behind_it_is_known_after_a_restart() -> None:
    ledger = Ledger(10)
    for i in range(4):
        ledger.read(10 + i, i + 1)
    ledger.settle(11)
    ledger.settle(12)
    again = reloaded(ledger)
    assert again.next_offset == 10
    assert [again.read(10 + i, i + 1) for i in range(5)] == [True, False, False, True, True]
    again.settle(10)
    assert again.base == 13


def test_repeats_of_outputs_are_settled_at_once_also_over_a_restart() -> None:
    ledger = Ledger(0)
    assert ledger.read(0, 1)
    assert ledger.read(1, 2)
    assert not ledger.read(2, 1)
    ledger.settle(0)
    ledger.settle(1)
    assert (ledger.base, ledger.high) == (3, 2)
    again = reloaded(ledger)
    assert not again.read(3, 2)
    assert again.read(4, 3)


def test_a_record_that_is_no_output_is_settled() -> None:
    ledger = Ledger(0)
    assert not ledger.read(0, 0)
    assert ledger.base == 1


def test_the_largest_span_fits_into_the_metadata_of_an_offset() -> None:
    ledger = Ledger(7)
    for i in range(SPAN_MAX):
        assert not ledger.full
        ledger.read(7 + i, i + 1)
    assert ledger.full
    for i in range(1, SPAN_MAX):
        ledger.settle(7 + i)
    assert len(ledger.save()[1].encode()) < METADATA_BYTES_MAX
    again = reloaded(ledger)
    assert [again.read(7 + i, i + 1) for i in range(SPAN_MAX)] == [True] + [False] * (SPAN_MAX - 1)


def test_what_is_settled_before_it_is_read_is_not_to_be_settled_again() -> None:
    """A post that was out while its partition was given back and taken over again."""
    ledger = Ledger(10)
    ledger.settle(11)
    ledger.settle(9)
    assert [ledger.read(10 + i, i + 1) for i in range(3)] == [True, False, True]
    assert reloaded(ledger).base == 10
    ledger.settle(10)
    assert ledger.base == 12


@pytest.mark.parametrize("metadata", ["x", "2 0 ", "1 x ", "1 -1 ", "1 0 ?", "1 0", "1 0  "])
def test_what_other_code_wrote_is_not_guessed(metadata: str) -> None:
    with pytest.raises(LedgerError):
        Ledger.load(3, metadata)


@pytest.mark.parametrize("seed", range(50))
def test_every_package_is_settled_once_over_any_restarts(seed: int) -> None:
    """Model: a log of packages and repeats; each run settles some, in any order, and stops."""
    chance = random.Random(seed)
    log = []
    for count in range(1, 60):
        log.append(count)
        log += (
            chance.sample(log, chance.randint(0, min(2, len(log)))) if chance.random() < 0.3 else []
        )
    settled: list[int] = []
    ledger = Ledger(0)
    for _ in range(400):
        pending = [at for at in range(ledger.base, len(log)) if ledger.read(at, log[at])]
        for at in chance.sample(pending, min(len(pending), 3)):
            ledger.settle(at)
            settled.append(log[at])
        ledger = reloaded(ledger)
    assert sorted(settled) == list(range(1, 60))
    assert ledger.base == len(log)
