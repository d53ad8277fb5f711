"""Sagas on a real Kafka: workers and engine killed while runs are taken back; ledgers are the
judges.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from examples.order.books import count
from examples.order.flow import order as flow
from examples.order.ledger import read
from examples.order.rules import SERVICES, Order, faults, order
from examples.order.shop import CLI, WORKERS, Recovered

from dalsegno.client import RunState

pytestmark = pytest.mark.kafka

SEED = 11
ORDERS = 40
LIMIT_S = 120.0


def doomed() -> list[Order]:
    """Orders that shipping or payment refuses for good, and whose money can be given back."""
    found = []
    for number in range(10_000):
        each = order(number, SEED)
        refused = [s for s in ("shipping", "payment") if faults(SEED, s, each.name).refuses]
        if refused and not faults(SEED, "payment", each.name, undo=True).refuses:
            found.append(each)
        if len(found) == ORDERS:
            return found
    raise AssertionError("the seed has too few of them")


class KillsWhileUndoing:
    """Kills a worker, the engine and the other worker, each after so many things taken back."""

    def __init__(self, shop: Recovered) -> None:
        self._shop = shop
        self.left = [(3, WORKERS[0]), (12, "engine"), (24, WORKERS[1]), (36, "engine")]

    def __call__(self, ended: int) -> bool:
        """Called some ten times a second."""
        del ended
        undone = sum(
            entry.what != "do"
            for service in SERVICES
            for entry in read(self._shop.folder / f"{service}.jsonl")
        )
        while self.left and undone >= self.left[0][0]:
            _, name = self.left.pop(0)
            self._shop.engines.kill(name)
            self._shop.engines.restart(name)
        return False


def test_kills_during_compensation_and_each_undo_is_done_once() -> None:
    orders = doomed()
    with Recovered(SEED, "examples.order.flow:order") as shop:
        kills = KillsWhileUndoing(shop)
        ends = shop.carry_out(flow, orders, LIMIT_S, kills)
        assert not kills.left, "every process was killed on the way"
        books = count(shop.folder, orders)
        assert books.twice == ()
        assert books.sums_wrong == ()
        assert books.torn == ()
        assert len(books.undone) == ORDERS
        assert {result.state for result in ends.values()} == {RunState.COMPENSATED}
        assert len(ends) == ORDERS

        # Nothing acts when the log is folded again: not the last event, not on another start.
        lines = sum(1 for service in SERVICES for _ in read(shop.folder / f"{service}.jsonl"))
        verified = subprocess.run(
            [sys.executable, *CLI, "verify"],
            env={**os.environ, **shop.env},
            check=False,
            capture_output=True,
            text=True,
        )
        assert verified.returncode == 0, verified.stdout + verified.stderr
        shop.engines.kill("engine")
        shop.engines.restart("engine")
        late = order(10_001, SEED)
        shop.client.start(flow, {"order": late.facts()}, run_id=late.name)
        shop.client.wait(late.name, "60s")
        after = [e for s in SERVICES for e in read(shop.folder / f"{s}.jsonl")]
        assert sum(entry.order != late.name for entry in after) == lines
