"""What an order is, and which faults it meets: pure functions of a seed, the same for every way of
working that is compared.

Amounts are whole cents. A service fails in four ways: the order is busy for the first calls
(423), it refuses for good (422), it does what it is asked and its answer is lost, or, rarely, it
cannot take back what it did.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

SERVICES: Final = ("stock", "payment", "shipping", "mail")
# Of a thousand orders, how many the service refuses for good.
REFUSED: Final = {"stock": 40, "payment": 70, "shipping": 110, "mail": 0}
# Of a thousand refunds, how many the bank refuses for good: a person has to see to those.
UNDO_REFUSED: Final = {"payment": 5}
# Of a thousand orders, how many are busy at a service for that many calls in a row.
BUSY: Final = ((60, 1), (40, 2), (30, 5), (20, 9))
# Of a thousand orders, of how many the answer to the first act is lost.
LOST: Final = 80


def _draw(*what: object, below: int = 1_000) -> int:
    """A number in [0, below) that depends on `what` alone."""
    text = "/".join(map(str, what)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") % below


class Order(NamedTuple):
    """What a customer wants."""

    name: str
    units: int
    price: int

    def facts(self) -> dict[str, object]:
        """As the run's context holds it."""
        return {"name": self.name, "units": self.units, "price": self.price}


def order(number: int, seed: int) -> Order:
    """Order `number`."""
    name = f"order-{seed}-{number:04d}"
    return Order(name, 1 + _draw(name, "units", below=5), 500 + _draw(name, "price", below=20_000))


class Faults(NamedTuple):
    """How a service treats one order. `busy`: calls in a row that find it so."""

    busy: int
    refuses: bool
    loses_answer: bool


def faults(seed: int, service: str, name: str, *, undo: bool = False) -> Faults:
    """How a service treats an order, or the taking back of it."""
    what = (seed, service, name, "undo" if undo else "do")
    draw, busy = _draw(*what, "busy"), 0
    for share, calls in BUSY:
        if draw < share:
            busy = calls
            break
        draw -= share
    refused = UNDO_REFUSED if undo else REFUSED
    return Faults(
        busy,
        _draw(*what, "refuses") < refused.get(service, 0),
        _draw(*what, "lost") < LOST,
    )
