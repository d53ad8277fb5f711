"""Where the fields of a context come from: the step that wrote each, and the run version of it."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Final

import msgspec

from dalsegno.schemas.package import Fact, FieldChange, FieldLine
from dalsegno.streams.core.draft import Draft
from dalsegno.streams.core.people.showing import value_text
from dalsegno.streams.core.people.state import NOBODY, OUTSIDE_MAX, Handled, Outside, Shown
from dalsegno.streams.core.step_table import COMPLETED

FACTS_MAX: Final = 7
FIELDS_MAX: Final = 24
_START: Final = "start"


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Who made a field what it is, and as of which run version."""

    source: str
    run_version: int
    change: FieldChange


_GIVEN: Final = Origin(_START, 1, FieldChange.GIVEN)


def note_outside(draft: Draft, fields: Iterable[str], origin: str) -> None:
    """Remembers that these fields came from outside the plan, in the unit that takes them in."""
    people = draft.head.people or NOBODY
    fresh = tuple(fields)
    version = draft.head.run_version + 1
    kept = [each for each in people.outside if each.field not in fresh]
    added = [Outside(field, origin, version) for field in fresh]
    draft.head.people = msgspec.structs.replace(
        people, outside=tuple([*kept, *added][-OUTSIDE_MAX:])
    )


def written_beside(draft: Draft, may_write: tuple[str, ...]) -> Handled | None:
    """What a completed step wrote though it only may; it is no longer in anybody's hands."""
    change = draft.change
    wrote = () if change is None else tuple(f for f in change.changed if f in may_write)
    return Handled(wrote=wrote) if wrote else None


class Origins:
    """Answers for one moment of one run. Costs one walk over the steps that have completed."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        # (run version, position) of the last step that wrote a field.
        self._by_step: dict[str, tuple[int, int]] = {}
        self._done: list[tuple[int, int]] = []
        for place, old in enumerate(draft.run.rows):
            row = draft.rows.get(place, old)
            if row.state is COMPLETED:
                wrote = self._wrote(place)
                if wrote:
                    self._done.append((row.done, place))
                for field in wrote:
                    self._by_step[field] = max(self._by_step.get(field, (0, 0)), (row.done, place))
        people = draft.head.people or NOBODY
        self._outside = {each.field: each for each in people.outside}

    def _wrote(self, place: int) -> tuple[str, ...]:
        """Fields that a completed step has written."""
        handled = self._draft.peek(place).handled
        beside = handled.wrote if handled is not None else ()
        return (*self._draft.steps[place].writes, *beside)

    def of(self, field: str) -> Origin:
        """The origin of a field that is there."""
        written = self._by_step.get(field)
        given = self._outside.get(field)
        if given is not None and (written is None or given.run_version > written[0]):
            return Origin(given.origin, given.run_version, FieldChange.SUPPLIED)
        if written is None:
            return _GIVEN
        return Origin(self._draft.steps[written[1]].name, written[0], FieldChange.WRITTEN)

    def facts(self, first: Iterable[str]) -> tuple[Fact, ...]:
        """The last valid conclusion: fields of `first`, then what was written last, newest first.

        At most `FACTS_MAX`, and none that is missing.
        """
        draft = self._draft
        names = dict.fromkeys(first)
        for _, place in nlargest(FACTS_MAX, self._done):
            names.update(dict.fromkeys(self._wrote(place)))
        there = [name for name in names if draft.context.get(name) is not None][:FACTS_MAX]
        facts = []
        for name in there:
            origin = self.of(name)
            text = value_text(draft.context, name, draft.plan.secrets)
            facts.append(
                Fact(field=name, value=text, source=origin.source, run_version=origin.run_version)
            )
        return tuple(facts)

    def lines(self, now: Iterable[Shown], before: Iterable[Shown]) -> tuple[FieldLine, ...]:
        """The fields that matter, as they are now. `before`: those that have changed since the
        package before, as it showed them.
        """
        draft = self._draft
        earlier = {each.field: each.value for each in before}
        lines = []
        for shown in now:
            name = shown.field
            there = draft.context.get(name) is not None
            origin = self.of(name) if there else None
            lines.append(
                FieldLine(
                    field=name,
                    value=shown.value,
                    change=FieldChange.MISSING if origin is None else origin.change,
                    source="" if origin is None else origin.source,
                    run_version=draft.head.run_version if origin is None else origin.run_version,
                    moved=name in earlier,
                    before=earlier.get(name, ""),
                )
            )
        return tuple(lines)
