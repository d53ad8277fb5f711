"""Plans of a partition: each stored once, however many runs follow it."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import Plan
from dalsegno.streams.core.plan import CompiledPlan, compile_plan
from dalsegno.streams.core.rows import StepRow

# How many plans are known by the bytes they came in, so that a repeated one is not checked again.
_KNOWN_MAX: Final = 256

_encode = msgspec.msgpack.Encoder().encode


class PlanEntry:
    """A compiled plan, the rows that its runs begin with, and how many runs and stubs name it."""

    __slots__ = ("plan", "refs", "rows")

    def __init__(self, plan: CompiledPlan) -> None:
        self.plan = plan
        self.rows = tuple(StepRow(needs=count) for count in plan.needs_count)
        self.refs = 0


class PlanStore:
    """The plans by digest. Those that a restore brought stay bytes until a run needs them."""

    def __init__(self) -> None:
        self._entries: dict[bytes, PlanEntry] = {}
        self._cold: dict[bytes, bytes] = {}
        self._cold_refs: dict[bytes, int] = {}
        self._known: dict[bytes, tuple[PlanEntry, int]] = {}
        self._dirty: dict[bytes, None] = {}

    def compiled(
        self, plan: Plan, policy: Policy, policy_number: int, ttl_ms: int
    ) -> tuple[PlanEntry, bytes]:
        """The entry of a plan, and a digest of the plan as it came. Raises `PlanRefused`.

        A plan that this policy has let through before is only asked for its longest path.
        """
        source = blake2b(_encode(plan), digest_size=32).digest()
        known = self._known.get(source)
        if known is not None and known[1] == policy_number:
            entry = known[0]
            if entry.plan.longest_path_ms <= ttl_ms:
                return entry, source
        entry = self._interned(compile_plan(plan, policy=policy, ttl_ms=ttl_ms))
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[source] = (entry, policy_number)
        return entry, source

    def extended(self, entry: PlanEntry, longer: CompiledPlan) -> PlanEntry:
        """The entry of a plan that grew. Needs of the steps that were there before are unchanged."""
        return self._interned(longer)

    def _interned(self, plan: CompiledPlan) -> PlanEntry:
        if plan.digest in self._entries or plan.digest in self._cold:
            return self.get(plan.digest)
        return PlanEntry(plan)

    def get(self, digest: bytes) -> PlanEntry:
        """The entry of a plan that some run or stub holds. Raises `KeyError` for any other."""
        entry = self._entries.get(digest)
        if entry is None:
            entry = PlanEntry(CompiledPlan.unpack(self._cold[digest]))
            entry.refs = self._cold_refs.pop(digest, 0)
            del self._cold[digest]
            self._entries[digest] = entry
        return entry

    def hold(self, entry: PlanEntry) -> None:
        """One more run or stub names the plan."""
        if entry.refs == 0:
            self._entries[entry.plan.digest] = entry
            self._dirty[entry.plan.digest] = None
        entry.refs += 1

    def drop(self, digest: bytes) -> None:
        """One less; the last one removes the plan."""
        entry = self._entries.get(digest)
        if entry is None:
            self._cold_refs[digest] -= 1
            if self._cold_refs[digest] == 0:
                del self._cold_refs[digest], self._cold[digest]
                self._dirty[digest] = None
            return
        entry.refs -= 1
        if entry.refs == 0:
            del self._entries[digest]
            self._dirty[digest] = None

    def restore(self, digest: bytes, packed: bytes) -> None:
        """Takes a plan part back as bytes."""
        self._cold[digest] = packed

    def restore_hold(self, digest: bytes) -> None:
        """Counts a header that names the plan, after a restore."""
        self._cold_refs[digest] = self._cold_refs.get(digest, 0) + 1

    def packed(self, digest: bytes) -> bytes | None:
        """The bytes of a plan's part, or None when no run names the plan."""
        entry = self._entries.get(digest)
        return self._cold.get(digest) if entry is None else entry.plan.pack()

    def digests(self) -> list[bytes]:
        """Digests of all plans that are held, in order."""
        return sorted([*self._entries, *self._cold])

    def take_dirty(self) -> list[bytes]:
        """Digests whose parts changed since the last call."""
        dirty = list(self._dirty)
        self._dirty.clear()
        return dirty
