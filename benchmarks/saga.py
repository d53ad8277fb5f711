"""Orders that come right: plain retry, forward recovery, and forward recovery with compensation.

    python -m benchmarks.saga [--orders N] [--seeds N] [--only WAY ...]

The same orders through the same four services under the same seeded faults, each way with services
and ledgers of its own. An order came right when all four services have done their part once, or
when nothing of it is left; counted from the ledgers, which must add up in every run. With
compensation, two workers and the engine are killed on the way as well.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass

from examples.order import flow as flows
from examples.order.__main__ import Kills
from examples.order.books import Books, count
from examples.order.rules import Order, order
from examples.order.shop import Recovered, Shop
from rich.console import Console
from rich.table import Table

WAYS = ("plain retry", "forward recovery", "with compensation")
LIMIT_S = 110.0
# Runs that wait for a person do not end: forward recovery alone is watched until nothing moves.
QUIET_S = 25.0


@dataclass(frozen=True, slots=True)
class Round:
    """One way with one seed."""

    books: Books
    states: Counter[str]
    took_s: float


def plainly(orders: list[Order], seed: int) -> Round:
    """Three tries of each call, in one process."""
    with Shop(seed) as shop:
        begun = time.monotonic()
        shop.plainly(orders)
        return Round(count(shop.folder, orders), Counter(), time.monotonic() - begun)


class Stillness:
    """Ends the wait when no further order has ended for a while."""

    def __init__(self) -> None:
        self._ended, self._since = -1, time.monotonic()

    def __call__(self, ended: int) -> bool:
        if ended != self._ended:
            self._ended, self._since = ended, time.monotonic()
        return time.monotonic() - self._since > QUIET_S


def recovered(orders: list[Order], seed: int, way: str) -> Round:
    """Through an engine and two workers."""
    forward = way == "forward recovery"
    name = "forward_only" if forward else "order"
    with Recovered(seed, f"examples.order.flow:{name}") as shop:
        kills = None if forward else Kills(shop, len(orders))
        still = Stillness()
        begun = time.monotonic()

        def watch(ended: int) -> bool:
            if kills is not None:
                kills(ended)
            return still(ended)

        flow = flows.forward_only if forward else flows.order
        ends = shop.carry_out(flow, orders, LIMIT_S, watch)
        states = Counter(result.state.value for result in ends.values())
        return Round(count(shop.folder, orders), states, time.monotonic() - begun)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.saga", description=__doc__)
    parser.add_argument("--orders", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=WAYS, default=WAYS)
    options = parser.parse_args(argv)
    rounds: dict[str, list[Round]] = {way: [] for way in options.only}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        orders = [order(number, seed) for number in range(options.orders)]
        for way in options.only:
            plain = way == "plain retry"
            rounds[way].append(plainly(orders, seed) if plain else recovered(orders, seed, way))
    show(Console(width=110), rounds, options.orders * options.seeds)
    return 0 if all(each.books.add_up for found in rounds.values() for each in found) else 1


def show(console: Console, rounds: dict[str, list[Round]], orders: int) -> None:
    """One line a way."""
    table = Table(title=f"{orders} orders, counted from the ledgers")
    for head in ("", "came right", "whole", "undone", "torn", "twice", "add up", "s"):
        table.add_column(head, justify="left" if not head else "right")
    for way, found in rounds.items():
        books = [each.books for each in found]
        whole, undone = sum(len(b.whole) for b in books), sum(len(b.undone) for b in books)
        torn, twice = sum(len(b.torn) for b in books), sum(len(b.twice) for b in books)
        table.add_row(
            way,
            f"{100 * (whole + undone) / orders:.1f} %",
            str(whole),
            str(undone),
            str(torn),
            str(twice),
            "yes" if all(b.add_up for b in books) else "NO",
            f"{sum(each.took_s for each in found):.0f}",
        )
    console.print(table)
    for way, found in rounds.items():
        for number, each in enumerate(found):
            console.print(f"{way}, seed {number + 1}: {dict(each.states)}")


if __name__ == "__main__":
    sys.exit(main())
