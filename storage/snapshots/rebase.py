"""When a new base pays: the ski-rental rule.

A longer chain is cheaper to write and dearer to restore. What a restore would read beyond a full
snapshot, times the chance that it is read, is rent; when the rent paid reaches the price of a base,
a base is bought. Without knowledge of the future that costs at most a few per cent more than the
best choice would have (benchmarks/snapshots prints it).
"""

from __future__ import annotations

from typing import Final

import msgspec

WEIGHT: Final = 0.03
"""Chance per link that it is restored, times the price of a byte read over one written."""
GROWTH_MAX: Final = 4
"""Deltas never add up to more than so many bases."""
LENGTH_MAX: Final = 64
"""Links of a chain, its base included."""


class Rent(msgspec.Struct, frozen=True, gc=False):
    """What a chain has cost so far. Bytes as stored."""

    base_bytes: int
    delta_bytes: int = 0
    links: int = 1
    paid: float = 0.0


def base_due(
    rent: Rent | None,
    delta_bytes: int,
    full_bytes: int,
    *,
    weight: float = WEIGHT,
    growth_max: float = GROWTH_MAX,
    length_max: int = LENGTH_MAX,
) -> bool:
    """Whether the next link should be a base. `full_bytes` is what one would take, estimated."""
    if rent is None:
        return True
    chain_bytes = rent.base_bytes + rent.delta_bytes + delta_bytes
    return (
        rent.paid + weight * max(0, chain_bytes - full_bytes) >= full_bytes
        or rent.delta_bytes + delta_bytes > growth_max * rent.base_bytes
        or rent.links >= length_max
    )


def pay(rent: Rent, delta_bytes: int, full_bytes: int, *, weight: float = WEIGHT) -> Rent:
    """The chain with one delta more."""
    chain_bytes = rent.base_bytes + rent.delta_bytes + delta_bytes
    return Rent(
        rent.base_bytes,
        rent.delta_bytes + delta_bytes,
        rent.links + 1,
        rent.paid + weight * max(0, chain_bytes - full_bytes),
    )
