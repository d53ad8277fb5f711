"""Idempotency keys: FAULTS R019. Another attempt, another process, the same key."""

import itertools

import pytest

from dalsegno.streams.core.effects import effect_key, recovery_key


def test_golden_keys():
    assert recovery_key("run-1", "charge") == "5:run-1/charge"
    assert effect_key("5:run-1/charge", "card", 0) == GOLDEN


GOLDEN = "f9c9f2835c8d1bf48b6f88cfc0a47089194c1e47"


def test_no_two_effects_share_a_key():
    names = ["", "a", "b", "a/b", "b/c", "a\0", "0", "1\0a", "é"]
    keys = {
        effect_key(recovery_key(run, step), effect, occurrence)
        for run, step, effect in itertools.product(names, repeat=3)
        for occurrence in (0, 1, 10)
    }
    assert len(keys) == len(names) ** 3 * 3


def test_an_occurrence_counts_from_zero():
    with pytest.raises(ValueError, match="counts from 0"):
        effect_key("k", "e", -1)
