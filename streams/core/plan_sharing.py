"""Which steps share context fields, kept so that an extension is checked by its own steps alone.

The same rule as `plan_overlap`, taken one step at a time in topological order: the writers of a
field form a chain, so a step that reads it must come after the last one, and a step that writes it
after the last one and after everyone who has read since. Sets of steps are integers: bit i stands
for step i. The sets of a plan of n steps hold n bits each, and only a plan that grows has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dalsegno.schemas.plan import StepPlan
from dalsegno.streams.core.plan_overlap import refuse_overlap


class Sharing(msgspec.Struct, frozen=True, eq=False):
    """What is known of a valid plan.

    * `ancestors[i]`: the steps that come before step i.
    * `fields[name]`: place of the field's last writer (-1: none), and who has read it since.
    """

    ancestors: tuple[int, ...] = ()
    fields: dict[str, tuple[int, int]] = {}

    def extend(
        self,
        steps: Sequence[StepPlan],
        needs: Sequence[Sequence[int]],
        order: Iterable[int],
        merged: Iterable[str],
    ) -> Sharing:
        """With the steps at `order`, places in `steps` and `needs`, which hold the whole plan.

        `merged`: fields with a merge rule, which steps may share. Raises
        `PlanRefused("overlapping_writes")` whose path holds the two steps.
        """
        ancestors = [*self.ancestors, *[0] * (len(steps) - len(self.ancestors))]
        fields = dict(self.fields)
        for place in order:
            mine = 0
            for need in needs[place]:
                mine |= ancestors[need] | 1 << need
            ancestors[place] = mine
            step = steps[place]
            written = dict.fromkeys((*step.writes, *step.may_write))
            for field in dict.fromkeys((*step.reads, *written)):
                if field in merged:
                    continue
                writer, readers = fields.get(field, (-1, 0))
                if writer >= 0 and not mine >> writer & 1:
                    refuse_overlap(steps[writer], step, field)
                if field not in written:
                    fields[field] = (writer, readers | 1 << place)
                    continue
                if unordered := readers & ~mine:
                    reader = (unordered & -unordered).bit_length() - 1
                    refuse_overlap(steps[reader], step, field)
                fields[field] = (place, 0)
        return Sharing(tuple(ancestors), fields)
