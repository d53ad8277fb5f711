"""Orders through four services that fail, taken back where they cannot be carried out.

    python -m examples.order [--orders N] [--seed N] [--no-kills]

Half way a worker and the engine are killed. Exit code 0 when every order was carried out whole or
wholly taken back, or is put to a person with what is left of it, and the ledgers add up.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from rich.console import Console
from rich.table import Table

from examples.order.books import Books, count
from examples.order.flow import order as flow
from examples.order.rules import Order, order
from examples.order.shop import WORKERS, Recovered

LIMIT_S = 90.0


class Kills:
    """Kills a worker, and then the engine, as the orders come in."""

    def __init__(self, shop: Recovered, orders: int) -> None:
        self._shop = shop
        self._left = [(orders // 4, WORKERS[0]), (orders // 2, "engine"), (orders // 2, WORKERS[1])]

    def __call__(self, ended: int) -> bool:
        """Never ends the wait by itself."""
        while self._left and ended >= self._left[0][0]:
            _, name = self._left.pop(0)
            self._shop.engines.kill(name)
            self._shop.engines.restart(name)
        return False


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="examples.order", description=__doc__)
    parser.add_argument("--orders", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--no-kills", action="store_true")
    options = parser.parse_args(argv)
    console, begun = Console(), time.monotonic()
    orders = [order(number, options.seed) for number in range(options.orders)]
    with Recovered(options.seed, "examples.order.flow:order") as shop:
        console.print(f"logs and ledgers: {shop.folder}")
        watch = None if options.no_kills else Kills(shop, len(orders))
        ends = shop.carry_out(flow, orders, LIMIT_S, watch)
        books = count(shop.folder, orders)
        states = Counter(result.state.value for result in ends.values())
    show(console, books, states, orders, time.monotonic() - begun)
    waiting = {each.name for each in orders} - set(ends)
    return 0 if books.add_up and set(books.torn) <= waiting else 1


def show(
    console: Console, books: Books, states: Counter[str], orders: list[Order], took_s: float
) -> None:
    """What came of it, by the ledgers."""
    table = Table(title=f"{len(orders)} orders in {took_s:.1f} s")
    table.add_column("by the ledgers")
    table.add_column("orders", justify="right")
    table.add_row("carried out whole", str(len(books.whole)))
    table.add_row("nothing of it left", str(len(books.undone)))
    table.add_row("waits for a person, in part", str(len(books.torn)))
    table.add_row("acts taken back", str(books.undos))
    table.add_row("keys closed before the act", str(books.closed))
    console.print(table)
    console.print("runs:", ", ".join(f"{n} {state}" for state, n in sorted(states.items())))
    for line in (*books.twice, *books.sums_wrong):
        console.print(f"[red]{line}")


if __name__ == "__main__":
    sys.exit(main())
