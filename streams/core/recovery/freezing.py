"""Freeze, look, release: scopes in which nothing is dispatched for recovery, and the ramp after.

A freeze holds further attempts of steps, never first ones. A release lets the line of its scope go
in log time: one step, a second later two, then four, up to the rate that was asked for. Until the
line is empty, what becomes due in the scope joins it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from dalsegno.schemas.control import RecoveryFrozen, RecoveryReleased
from dalsegno.streams.core.recovery.holding import FROZEN

# Between the batches of a release.
BEAT_MS: Final = 1_000
# The first batch of a release; each further one is twice as large.
FIRST_BATCH: Final = 1
# Scopes that can be frozen on a partition at a time.
SCOPES_MAX: Final = 64
_NEVER: Final = 1 << 62


class Freeze(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One scope. Empty `flow` and `fault_point`: everything. `batch`, `next_ms`: of a release under
    way; `batch` is 0 while the scope is frozen. `rate_per_s` 0: nothing bounds the ramp.
    """

    flow: str
    fault_point: str
    since_ms: int
    reason: str = ""
    by: str = ""
    rate_per_s: int = 0
    batch: int = 0
    next_ms: int = _NEVER

    @property
    def line(self) -> str:
        """The name of the line that what it holds stands in."""
        return line_of(self.flow, self.fault_point)

    def covers(self, flow: str, depends_on: Sequence[str]) -> bool:
        """Whether a step of a flow is in the scope."""
        if self.flow and self.flow != flow:
            return False
        return not self.fault_point or self.fault_point.partition("/")[0] in depends_on


def line_of(flow: str, fault_point: str) -> str:
    """The name of a scope's line: flows may have any character in their names."""
    return f"{FROZEN}{len(flow)}:{flow}:{fault_point}"


class Freezes:
    """The scopes of a partition, by their lines, in the order of these."""

    __slots__ = ("_scopes",)

    def __init__(self) -> None:
        self._scopes: dict[str, Freeze] = {}

    def __bool__(self) -> bool:
        """Whether anything is frozen, or being released."""
        return bool(self._scopes)

    def __iter__(self) -> Iterator[Freeze]:
        return iter(self._scopes.values())

    def freeze(self, event: RecoveryFrozen, now_ms: int) -> str:
        """Freezes a scope, also one that is being released. Returns why not, or an empty text."""
        line = line_of(event.flow, event.fault_point)
        known = self._scopes.get(line)
        if known is None and len(self._scopes) >= SCOPES_MAX:
            return f"{SCOPES_MAX} scopes are frozen already"
        since = now_ms if known is None else known.since_ms
        frozen = Freeze(event.flow, event.fault_point, since, event.reason, event.source)
        self._scopes[line] = frozen
        self._scopes = dict(sorted(self._scopes.items()))
        return ""

    def release(self, event: RecoveryReleased, now_ms: int) -> str:
        """Begins the release of a scope. Returns why not, or an empty text."""
        line = line_of(event.flow, event.fault_point)
        known = self._scopes.get(line)
        if known is None:
            return "nothing is frozen in this scope"
        rate = max(0, event.rate_per_s)
        self._scopes[line] = msgspec.structs.replace(
            known, rate_per_s=rate, batch=known.batch or FIRST_BATCH, next_ms=now_ms
        )
        return ""

    def holding(self, flow: str, depends_on: Sequence[str], passes: str = "") -> str:
        """The line of the first scope that holds a step, or an empty text.

        `passes`: the line whose turn it is for the step. It has passed that one, and every scope
        that is being released: it has had its turn there, or came later than this release.
        """
        for line, freeze in self._scopes.items():
            if freeze.covers(flow, depends_on):
                if passes and (line == passes or freeze.batch):
                    continue
                return line
        return ""

    def due(self, now_ms: int) -> list[str]:
        """Lines of which the next batch may go."""
        return [line for line, freeze in self._scopes.items() if freeze.next_ms <= now_ms]

    def take_batch(self, line: str, now_ms: int) -> int:
        """How many steps of a line go now. The next batch is a beat away, however late this is."""
        freeze = self._scopes[line]
        limit = freeze.rate_per_s or _NEVER
        batch = min(freeze.batch, limit)
        self._scopes[line] = msgspec.structs.replace(
            freeze, batch=min(2 * batch, limit), next_ms=now_ms + BEAT_MS
        )
        return batch

    def thaw(self, line: str) -> None:
        """The line of a scope that is being released is empty: the scope is open."""
        freeze = self._scopes.get(line)
        if freeze is not None and freeze.batch:
            del self._scopes[line]

    @property
    def next_ms(self) -> int:
        """When the next batch of any scope is due."""
        return min((freeze.next_ms for freeze in self._scopes.values()), default=_NEVER)

    def pack(self) -> list[Freeze]:
        """The scopes, for a checkpoint."""
        return list(self._scopes.values())

    def load(self, scopes: Iterable[Freeze]) -> None:
        """What `pack` gave."""
        self._scopes = {freeze.line: freeze for freeze in scopes}
