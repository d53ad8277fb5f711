"""What the bank and the ledger say of an account, and what follows: pure functions of a seed.

Amounts are whole cents; credits are positive. The bank is right: what the ledger says otherwise is
corrected by a booking of the difference.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

CORRECTIONS_MAX: Final = 4
_LINES: Final = 12
KINDS: Final = ("not in the ledger", "another amount", "twice in the ledger")


class Line(NamedTuple):
    """One line of a statement, or one entry of the ledger."""

    reference: str
    cents: int


class Correction(NamedTuple):
    """A booking that makes the ledger say what the bank says about one reference."""

    reference: str
    kind: str
    cents: int


def draw(*what: object, below: int = 1_000) -> int:
    """A number in [0, below) that depends on `what` alone."""
    text = "/".join(map(str, what)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") % below


def accounts(count: int, seed: int) -> list[str]:
    """Names of the accounts."""
    return [f"account-{seed}-{number:03d}" for number in range(count)]


def statement(account: str) -> list[Line]:
    """What the bank says: the right lines of the day."""
    return [
        Line(f"{account[-3:]}-{number:02d}", _amount(account, number)) for number in range(_LINES)
    ]


def _amount(account: str, number: int) -> int:
    cents = 100 + draw(account, number, "cents", below=90_000)
    return -cents if draw(account, number, "sign", below=2) else cents


def ledger(account: str) -> list[Line]:
    """What the ledger says: one to four of the day's lines are wrong in it."""
    wrong = 1 + draw(account, "wrong", below=CORRECTIONS_MAX)
    order = sorted(range(_LINES), key=lambda number: draw(account, number, "order", below=1 << 60))
    at = {number: KINDS[draw(account, number, "kind", below=3)] for number in order[:wrong]}
    entries: list[Line] = []
    for number, line in enumerate(statement(account)):
        kind = at.get(number)
        if kind == "another amount":
            entries.append(line._replace(cents=line.cents + 1 + draw(account, number, "slip")))
        elif kind == "twice in the ledger":
            entries += [line, line]
        elif kind is None:
            entries.append(line)
    return entries


def match(lines: Iterable[Line], entries: Iterable[Line]) -> list[Correction]:
    """The corrections that make `entries` say what `lines` say, by reference."""
    bank, book, times = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        bank[line.reference] += line.cents
    for entry in entries:
        book[entry.reference] += entry.cents
        times[entry.reference] += 1
    found = []
    for reference in sorted({*bank, *book}):
        cents = bank[reference] - book[reference]
        if cents == 0:
            continue
        kind = KINDS[min(times[reference], 2)]
        found.append(Correction(reference, kind, cents))
    return found


def corrections(account: str) -> list[Correction]:
    """What the account needs, computed without any service."""
    return match(statement(account), ledger(account))


def taken_back(account: str) -> bool:
    """How the clerk in this example decides about an account that was put to them.

    Four in ten accounts are to be booked by another department: what was booked is taken back.
    """
    return draw(account, "clerk", below=10) < 4


def swallows(account: str, reference: str) -> bool:
    """What the failing booking service does with a booking: half of them it writes into its book
    before the answer is lost, the others it loses whole.
    """
    return bool(draw(account, reference, "swallows", below=2))
