"""What a person is told of a run of which only a stub is here. Nothing is asked."""

from __future__ import annotations

from dalsegno.schemas.outputs import Escalation
from dalsegno.schemas.package import EffectLine
from dalsegno.streams.core.bounds import words
from dalsegno.streams.core.cold import ColdHead
from dalsegno.streams.core.moment import Moment
from dalsegno.streams.core.runstate import StubHead


def notice(
    now: Moment,
    run_id: str,
    head: StubHead | ColdHead,
    *,
    mark: str,
    reason: str,
    message: str,
    question: str,
    silence_text: str,
    became: str,
    step: str = "",
    epoch: int = 0,
    effect_lines: tuple[EffectLine, ...] = (),
) -> Escalation:
    """`mark` makes its id one of the run's. `became`: what the run has become, in a word or two."""
    return Escalation(
        escalation_id=f"{run_id}#{mark}",
        run_id=run_id,
        flow=head.flow,
        flow_version=head.flow_version,
        step=step,
        epoch=epoch,
        asked="notice",
        reason=reason,
        failure_type="",
        error_class="",
        message=words(message),
        missing_fields=(),
        advice="",
        goal="",
        attempts=0,
        infra_attempts=0,
        at_ms=now.log_ms,
        answer_by_ms=now.log_ms + now.policy.person_wait_ms,
        run_version=head.run_version,
        plan_digest=head.plan_digest,
        values_digest=b"",
        question=question,
        silence_text=silence_text,
        run_goal=f"{head.flow} (version {head.flow_version}), {became} as {head.state}",
        effect_lines=effect_lines,
        partition=now.partition,
        offset=now.offset,
        cause=reason,
    )
