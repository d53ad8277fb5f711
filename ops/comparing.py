"""What changed in a run's context between two of its run versions."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from dalsegno.ops.following import HeldContext
from dalsegno.schemas.control import Policy
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_delta import ops_between

_SHOWN_MAX: Final = 12
_EMPTY: Final = b"\x80"
# What was taken in once is within bounds, whatever the policy was then.
_UNBOUNDED = Policy(inline_bytes_max=2**31, context_bytes_max=2**31)


class NoSuchVersion(Exception):  # noqa: N818 - says what is the case
    """The run was never at that run version, as far as one can see between two records."""

    def __init__(self, run_id: str, version: int, known: Iterable[int]) -> None:
        versions = sorted(known)
        some = versions if len(versions) <= _SHOWN_MAX else [*versions[:3], "...", *versions[-3:]]
        super().__init__(
            f"run {run_id!r} has no run version {version} to look at (it has: "
            f"{', '.join(map(str, some)) or 'none'})"
        )
        self.run_id = run_id
        self.version = version


class Difference(NamedTuple):
    """`diff` is that of a transition (see `context_diff`), secrets masked.

    `moved`: fields that are of another schema version after, as (field, before, after); 0 for none.
    """

    before: HeldContext
    after: HeldContext
    diff: bytes
    moved: tuple[tuple[str, int, int], ...]


def between(before: HeldContext, after: HeldContext) -> Difference:
    """What turns the one context into the other; secrets of either are masked."""
    context = Context.create(before.context, _UNBOUNDED)
    change = context.apply(ops_between(before.context, after.context), _UNBOUNDED)
    moved = tuple(
        (name, before.versions.get(name, 0), after.versions.get(name, 0))
        for name in sorted(before.versions | after.versions)
        if before.versions.get(name) != after.versions.get(name)
        and before.versions.get(name, before.schema_version)
        != after.versions.get(name, after.schema_version)
    )
    return Difference(before, after, change.diff(before.secrets | after.secrets), moved)


def of_versions(seen: Iterable[HeldContext], run_id: str, first: int, last: int) -> Difference:
    """The difference between two run versions; version 0 is the empty context before the start.

    Raises `NoSuchVersion`.
    """
    kept: dict[int, HeldContext] = {}
    known = {0}
    for each in seen:
        known.add(each.run_version)
        kept.setdefault(0, each._replace(run_version=0, versions={}, context=_EMPTY))
        if each.run_version in {first, last}:
            kept[each.run_version] = each
    for version in (first, last):
        if version not in kept:
            raise NoSuchVersion(run_id, version, known if kept else ())
    return between(kept[first], kept[last])
