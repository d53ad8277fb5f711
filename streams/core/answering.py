"""Answers on the control topic."""

from __future__ import annotations

from dalsegno.schemas.outputs import Answer, AnswerType, Outcome, RunState
from dalsegno.streams.core.actions import Reply
from dalsegno.streams.core.bounds import words
from dalsegno.streams.core.moment import Moment, Ruling
from dalsegno.streams.core.names import DETAIL_CHARS_MAX

CHANNEL = "control"

_TYPE = {
    Outcome.APPLIED: AnswerType.ACCEPTED,
    Outcome.DUPLICATE: AnswerType.DUPLICATE,
    Outcome.SUPERSEDED: AnswerType.SUPERSEDED,
    Outcome.REFUSED: AnswerType.REFUSED,
    Outcome.DEAD_LETTERED: AnswerType.REFUSED,
}
# Runs whose workers are told that there is nothing left to do, rather than that another took over.
_STOPPED = frozenset({RunState.CANCELLED, RunState.EXPIRED, RunState.FAILED})


def answer_type(ruling: Ruling, state: RunState | None) -> AnswerType:
    """What an answer to this ruling says; a repeat that is answered hears what it heard then."""
    if ruling.outcome is Outcome.DUPLICATE and ruling.answer:
        return AnswerType.ACCEPTED
    if ruling.outcome is Outcome.SUPERSEDED and state in _STOPPED:
        return AnswerType.CANCELLED
    return _TYPE[ruling.outcome]


def tell(
    now: Moment,
    reply_to: str,
    run_id: str,
    answer: AnswerType,
    *,
    step: str = "",
    epoch: int = 0,
    kind: str = "",
    reason: str = "",
    detail: str = "",
    current_epoch: int = 0,
    run_state: RunState | None = None,
    run_version: int = 0,
    context: bytes = b"",
    context_omitted: bool = False,
) -> None:
    """Sends an answer, if there is an address."""
    if not reply_to:
        return
    body = Answer(
        reply_to=reply_to,
        run_id=run_id,
        answer=answer,
        step=words(step),
        epoch=epoch,
        kind=kind,
        # A member of an enum of ours would not encode: the contract's reason is plain text.
        # Short, as a context beside it may be as large as the policy lets it be.
        reason=str(reason)[:DETAIL_CHARS_MAX],
        detail=words(detail),
        current_epoch=current_epoch,
        run_state=run_state,
        run_version=run_version,
        context=context,
        context_omitted=context_omitted,
    )
    now.outbox.put(CHANNEL, Reply(body))
