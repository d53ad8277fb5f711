"""A run at one of its versions, folded from its partition's events."""

from collections.abc import Iterator

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
            if made.number == 1:
                facts = Facts.begin(made, "log")
                view = each.partition.run(run_id)
                flow = (view.flow, view.flow_version) if view is not None else flow
            else:
                assert facts is not None, "the first version came before"
                facts.follow(made)
            if run_version in {None, made.number}:
                yield view_past(facts.past, _whose(made, flow))


def _whose(made: Made, flow: tuple[str, int]) -> Whose:
    return Whose(made.run_id, made.began_ms, *flow, made.entry, made.number)
