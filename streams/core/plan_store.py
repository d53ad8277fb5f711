"""Plans of a partition: each stored once, however many runs follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final

import msgspec

from dalsegno.schemas.control import Policy
from dalsegno.schemas.plan import Plan
from dalsegno.streams.core.plan import CompiledPlan, compile_plan
from dalsegno.streams.core.plan_pack import before_of
from dalsegno.streams.core.rows import StepRow
from dalsegno.streams.core.warm import Warm

# How many plans are known by the bytes they came in, so that a repeated one is not checked again.
_KNOWN_MAX: Final = 256
# With a store: from so many on, plans that no run in memory follows are forgotten.
_REMEMBERED: Final = 1_000
# And so many for each that is kept, so that not every checkpoint looks for them.
_SPARE: Final = 2

_encode = msgspec.msgpack.Encoder().encode


class PlanEntry:
    """A compiled plan and the rows that its runs begin with."""

    __slots__ = ("plan", "rows", "steps")

    def __init__(self, plan: CompiledPlan, known: tuple[StepRow, ...] = ()) -> None:
        """`known`: the rows of the plan that this one extends."""
        self.plan = plan
        self.steps = plan.steps
        self.rows = (*known, *[StepRow(needs=n) for n in plan.needs_count[len(known) :]])


class PlanStore:
    """The plans by digest, each as long as a run or a stub names it, or a plan that extends it.

    Those that a restore brought stay bytes until a run needs them, and those that only longer ones
    name become bytes again: so a plan that grew in a thousand parts is in memory once.
    """

    def __init__(self) -> None:
        self._refs: dict[bytes, int] = {}
        self._longer: dict[bytes, int] = {}
        self._entries: dict[bytes, PlanEntry] = {}
        self._cold: dict[bytes, bytes] = {}
        self._known: dict[bytes, tuple[PlanEntry, Policy]] = {}
        self._last: Plan | None = None
        self._last_source = b""
        self._dirty: dict[bytes, None] = {}
        self._warm: Warm | None = None
        # With a store: what it does not know yet, by the capture that says so (0: none yet).
        self._touched: dict[bytes, int] = {}
        self._remember = _REMEMBERED

    def open_store(self, warm: Warm) -> None:
        """Plans that are not known are asked for there from now on."""
        self._warm = warm

    def _know(self, digest: bytes) -> None:
        """Sees that what the store has of a plan is known. Raises `WarmLost`."""
        if self._warm is None or digest in self._refs or digest in self._longer:
            return
        if digest in self._touched:
            return
        found = self._warm.plans((digest,)).get(digest)
        if found is not None:
            self._cold[digest] = found.packed
            if found.refs:
                self._refs[digest] = found.refs
            if found.longer:
                self._longer[digest] = found.longer

    def _touch(self, digest: bytes) -> None:
        self._know(digest)
        if self._warm is not None:
            self._touched[digest] = 0

    def captured(self, number: int) -> None:
        """What changed so far is on its way to the store."""
        for digest, at in self._touched.items():
            if not at:
                self._touched[digest] = number

    def stored(self, number: int, followed: Callable[[], set[bytes]]) -> None:
        """The store has everything up to this capture: plans that no run in memory follows may be
        forgotten.
        """
        self._touched = {d: at for d, at in self._touched.items() if not 0 < at <= number}
        if len(self._refs) + len(self._longer) <= self._remember:
            return
        kept = followed()
        for digest in {*self._refs, *self._longer, *self._cold} - kept - self._touched.keys():
            self._refs.pop(digest, None)
            self._longer.pop(digest, None)
            self._entries.pop(digest, None)
            self._cold.pop(digest, None)
        self._remember = _REMEMBERED + _SPARE * len(self._refs)

    def compiled(self, plan: Plan, policy: Policy, ttl_ms: int) -> tuple[PlanEntry, bytes]:
        """The entry of a plan, and a digest of the plan as it came. Raises `PlanRefused`.

        A plan that this policy has let through before is only asked for its longest path.
        """
        # The codec gives the same object for the same bytes while it remembers them.
        if plan is not self._last:
            self._last, self._last_source = plan, blake2b(_encode(plan), digest_size=32).digest()
        source = self._last_source
        known = self._known.get(source)
        if known is not None and known[1] is policy:
            entry = known[0]
            if entry.plan.longest_path_ms <= ttl_ms:
                return entry, source
        entry = self.interned(compile_plan(plan, policy=policy, ttl_ms=ttl_ms))
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[source] = (entry, policy)
        return entry, source

    def interned(self, plan: CompiledPlan, known: tuple[StepRow, ...] = ()) -> PlanEntry:
        """The entry of an equal plan, if there is one. `known`: rows of the plan it extends."""
        self._know(plan.digest)
        return self.get(plan.digest) if plan.digest in self._refs else PlanEntry(plan, known)

    def get(self, digest: bytes) -> PlanEntry:
        """The entry of a plan that some run or stub names. Raises `KeyError` for any other."""
        entry = self._entries.get(digest)
        if entry is None:
            self._know(digest)
            parts = [self._cold[digest]]
            while before := before_of(parts[-1]):
                self._know(before)
                shorter = self._entries.get(before)
                parts.append(self._cold[before] if shorter is None else shorter.plan.pack())
            entry = self._entries[digest] = PlanEntry(CompiledPlan.unpack(*reversed(parts)))
            del self._cold[digest]
        return entry

    def hold(self, entry: PlanEntry) -> None:
        """One more run or stub names the plan."""
        digest = entry.plan.digest
        self._touch(digest)
        refs = self._refs.get(digest, 0)
        self._refs[digest] = refs + 1
        if refs == 0:
            self._entries[digest] = entry
            self._cold.pop(digest, None)
            if digest not in self._longer:
                self._dirty[digest] = None
                if entry.plan.before:
                    self._lengthen(entry.plan.before)

    def _lengthen(self, digest: bytes) -> None:
        self._touch(digest)
        self._longer[digest] = self._longer.get(digest, 0) + 1

    def drop(self, digest: bytes) -> None:
        """One less; the last one removes the plan, and those before it that it was the last of."""
        self._touch(digest)
        self._refs[digest] -= 1
        if self._refs[digest]:
            return
        del self._refs[digest]
        while digest not in self._refs:
            entry = self._entries.pop(digest, None)
            packed = self._cold.pop(digest, b"") if entry is None else entry.plan.pack()
            if digest in self._longer:
                self._cold[digest] = packed
                return
            self._dirty[digest] = None
            digest = before_of(packed)
            if not digest:
                return
            self._touch(digest)
            self._longer[digest] -= 1
            if not self._longer[digest]:
                del self._longer[digest]

    def restore(self, digest: bytes, packed: bytes) -> None:
        """Takes a plan part back as bytes."""
        self._cold[digest] = packed
        if before := before_of(packed):
            self._lengthen(before)

    def restore_hold(self, digest: bytes) -> None:
        """Counts a header that names the plan, after a restore."""
        self._refs[digest] = self._refs.get(digest, 0) + 1

    def packed(self, digest: bytes) -> bytes | None:
        """The bytes of a plan's part, or None when nothing names the plan."""
        if digest not in self._refs and digest not in self._longer:
            return None
        entry = self._entries.get(digest)
        return self._cold[digest] if entry is None else entry.plan.pack()

    def all(self, named: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Every plan and its bytes; `named`: what runs name that are not in memory."""
        digests: set[bytes] = set()
        for digest in {*self._refs, *self._longer, *named} - {b""}:
            while digest and digest not in digests:
                self._know(digest)
                digests.add(digest)
                digest = before_of(self.packed(digest) or b"")  # noqa: PLW2901 - along the chain
        for digest in sorted(digests):
            yield digest, self.packed(digest) or b""

    def digests(self) -> list[bytes]:
        """Digests of all plans that are named, in order."""
        return sorted({*self._refs, *self._longer})

    def take_dirty(self) -> list[bytes]:
        """Digests whose parts changed since the last call."""
        dirty = list(self._dirty)
        self._dirty.clear()
        return dirty
