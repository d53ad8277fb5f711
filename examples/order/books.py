"""What the services' ledgers say about every order, counted from the ledgers alone.

An order is *whole* when all four services have done their part exactly once and nothing was taken
back; it is *undone* when all that was done has been taken back. Everything else is *torn*. Money
and stock add up when what the books hold is that of the whole orders and of the torn ones, to the
cent and to the piece, and nothing was done or taken back twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from examples.order.ledger import Entry, read
from examples.order.rules import SERVICES, Order


@dataclass(frozen=True, slots=True)
class Books:
    """Orders by how they ended, by name; and what went wrong in the books, if anything."""

    whole: tuple[str, ...]
    undone: tuple[str, ...]
    torn: tuple[str, ...]
    twice: tuple[str, ...]
    sums_wrong: tuple[str, ...]
    undos: int
    closed: int
    taken: dict[str, int] = field(default_factory=dict)

    @property
    def add_up(self) -> bool:
        """Nothing done twice, nothing taken back twice, and the sums are right."""
        return not self.twice and not self.sums_wrong


def count(folder: Path, orders: list[Order]) -> Books:
    """Reads the ledgers `<service>.jsonl` in `folder`."""
    stands: dict[str, Counter[str]] = defaultdict(Counter)
    twice: list[str] = []
    undos = closed = 0
    taken: Counter[str] = Counter()
    for service in SERVICES:
        entries = list(read(folder / f"{service}.jsonl"))
        twice += _doubled(service, entries)
        for entry in entries:
            sign = {"do": 1, "undo": -1, "close": 0}[entry.what]
            stands[entry.order][service] += sign
            taken[service] += sign * (entry.units if service == "stock" else entry.amount)
            undos += entry.what == "undo"
            closed += entry.what == "close"
    whole, undone, torn = _sorted(stands, orders)
    return Books(
        whole,
        undone,
        torn,
        tuple(twice),
        tuple(_wrong_sums(stands, orders, taken)),
        undos,
        closed,
        dict(taken),
    )


def _doubled(service: str, entries: list[Entry]) -> list[str]:
    """Acts of one order at one service that were done or taken back more than once."""
    done = Counter(entry.order for entry in entries if entry.what == "do")
    back = Counter(entry.key for entry in entries if entry.what != "do")
    keys = Counter(entry.key for entry in entries if entry.what == "do")
    found = [f"{service}: {order} done {n} times" for order, n in done.items() if n > 1]
    found += [f"{service}: key {key} done {n} times" for key, n in keys.items() if n > 1]
    found += [f"{service}: key {key} taken back {n} times" for key, n in back.items() if n > 1]
    return found


def _sorted(
    stands: dict[str, Counter[str]], orders: list[Order]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    whole: list[str] = []
    undone: list[str] = []
    torn: list[str] = []
    for order in orders:
        left = [stands[order.name][service] for service in SERVICES]
        if all(each == 1 for each in left):
            whole.append(order.name)
        elif not any(left):
            undone.append(order.name)
        else:
            torn.append(order.name)
    return tuple(whole), tuple(undone), tuple(torn)


def _wrong_sums(
    stands: dict[str, Counter[str]], orders: list[Order], taken: Counter[str]
) -> list[str]:
    """What the books hold against what stands of each order, by the orders' own words."""
    found = []
    for service in SERVICES:
        standing = [order for order in orders if stands[order.name][service] > 0]
        right = sum(order.units if service == "stock" else order.price for order in standing)
        if taken[service] != right:
            found.append(f"{service}: the book holds {taken[service]}, the orders say {right}")
    strangers = set(stands) - {order.name for order in orders}
    return found + [f"an order that nobody placed: {name}" for name in sorted(strangers)]
