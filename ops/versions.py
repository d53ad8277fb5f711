"""A run at one of its versions, folded from its partition's events."""

from collections.abc import Iterator

import msgspec

from dalsegno.ops.folding import Folded
from dalsegno.streams.core.versions import Facts, Made, VersionView, Whose, view_past


def version_of(folded: Iterator[Folded], run_id: str, run_version: int) -> VersionView | None:
    """The run as it was at that version; of several runs of this id, the newest that had it.

    `folded` must note versions (`fold_records(..., versions=True)`).
    """
    found: VersionView | None = None
    for view in versions_of(folded, run_id, run_version):
        found = view
    return found


def versions_of(
    folded: Iterator[Folded], run_id: str, run_version: int | None = None
) -> Iterator[VersionView]:
    """All versions of the runs of this id, in order; with `run_version`, those of this number."""
    facts: Facts | None = None
    flow = "", 0
    for each in folded:
        for made in each.partition.versions.drain():
            if made.run_id != run_id:
                continue
            if facts is not None and made.number == facts.number + 1:
                facts.follow(made)
            else:
                facts = _begun(each, made)
                view = each.partition.run(run_id)
                flow = (view.flow, view.flow_version) if view is not None else flow
            if facts is not None and run_version in {None, made.number}:
                yield view_past(facts.past, _whose(made, flow))


def _begun(folded: Folded, made: Made) -> Facts | None:
    """A run at its first version, or as another cluster's archive brought it in; None where the
    state has gone on in the same record.
    """
    if made.first is not None:
        return Facts.begin(made, "log")
    now = folded.partition.versions.past(made.run_id)
    if now is None or now.number != made.number:
        return None
    return Facts(msgspec.structs.replace(now, at_ms=made.at_ms, source="log"))


def _whose(made: Made, flow: tuple[str, int]) -> Whose:
    return Whose(made.run_id, made.began_ms, *flow, made.entry, made.number)
