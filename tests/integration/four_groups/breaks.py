"""Deliberate breaks of the product, each of which one of the checks has to find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.schemas.events import StepCompleted
from dalsegno.schemas.outputs import Handoff
from dalsegno.streams.client.attempt import Attempt
from dalsegno.streams.client.runner import Runner
from dalsegno.streams.core import dispatch
from dalsegno.streams.core.actions import Audit, Dispatch, Output
from dalsegno.streams.core.context import Context
from dalsegno.streams.core.context_change import ContextChange

if TYPE_CHECKING:
    from dalsegno.streams.engine.encoding import OutRecord
    from dalsegno.streams.engine.outputs import Outputs


def old_version() -> None:
    """Handoffs name the run version before the one that their inputs were read at."""
    made = dispatch.Handoff

    def older(*fields: Any) -> Handoff:
        return made(*fields[:7], fields[7] - 1, *fields[8:])

    dispatch.Handoff = older  # type: ignore[assignment, misc]


def whole_context() -> None:
    """Handoffs carry the whole context."""
    for view in (Context, ContextChange):
        pack = view.pack

        def packing(self: Any, _fields: Iterable[str], pack: Any = pack) -> bytes:
            return pack(self, self.names())

        view.pack = packing  # type: ignore[method-assign]


def stale_worker() -> None:
    """A worker reads the inputs of the run that it had before."""
    start, last = Runner.start, {}

    def starting(self: Runner, attempt: Attempt) -> None:
        step = attempt.handoff.step
        inputs = last.get(step, attempt.handoff.inputs)
        last[step] = attempt.handoff.inputs
        attempt.handoff = msgspec.structs.replace(attempt.handoff, inputs=inputs)
        start(self, attempt)

    Runner.start = starting  # type: ignore[method-assign]


def lost_handoff() -> None:
    """Of what goes to the queue behind, one in five never leaves."""
    from dalsegno.streams.engine.outputs import Outputs

    add, seen = Outputs.add, [0]

    def adding(self: Outputs, outputs: Iterable[Output]) -> None:
        def kept(output: Output) -> bool:
            behind = isinstance(output.action, Dispatch) and output.action.queue == "back"
            seen[0] += behind
            return not (behind and seen[0] % 5 == 0)

        add(self, [output for output in outputs if kept(output)])

    Outputs.add = adding  # type: ignore[method-assign]


def other_words() -> None:
    """Transitions leave with another detail than the fold gave them."""
    from dalsegno.streams.engine import encoding

    record = encoding.Encoder.record

    def recording(self: Any, output: Output) -> OutRecord:
        action = output.action
        if isinstance(action, Audit) and action.transition.cause == StepCompleted.__name__:
            changed = msgspec.structs.replace(action.transition, detail="as it seemed here")
            output = Output(output.sequence, Audit(changed))
        return record(self, output)

    encoding.Encoder.record = recording  # type: ignore[method-assign]


BREAKS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (old_version, whole_context, stale_worker, lost_handoff, other_words)
}
