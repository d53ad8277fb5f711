"""Deliberate bugs in what people are asked and how their decisions are judged."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from dalsegno.streams.core import information, routing
from dalsegno.streams.core.people import (
    approvals,
    asking,
    decisions,
    effecting,
    package,
    showing,
    silence,
)

Break = Callable[[pytest.MonkeyPatch], None]


def _risky_steps_need_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dalsegno.streams.core.dispatch.approved", lambda *_: True)


def _an_approval_is_for_ever(patch: pytest.MonkeyPatch) -> None:
    def approved(draft: object, place: int, row: object) -> bool:
        handled = row.handled  # type: ignore[attr-defined]
        return handled is not None and handled.approval is not None

    patch.setattr("dalsegno.streams.core.dispatch.approved", approved)


def _values_may_move(patch: pytest.MonkeyPatch) -> None:
    for module in (asking, approvals, decisions):
        patch.setattr(module, "moved", lambda *_: False)
    patch.setattr(approvals, "approval_digest", lambda *_: b"")


def _digests_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    real = decisions._find

    def find(draft: object, event: object) -> object:
        return real(
            draft, msgspec.structs.replace(event, package_digest=_open_digest(draft, event))
        )  # type: ignore[arg-type,type-var]

    patch.setattr(decisions, "_find", find)


def _open_digest(draft: object, event: object) -> bytes:
    plan = draft.plan  # type: ignore[attr-defined]
    place = plan.index.get(event.step)  # type: ignore[attr-defined]
    handled = None if place is None else draft.peek(place).handled  # type: ignore[attr-defined]
    ask = None if handled is None else handled.ask
    return b"" if ask is None else ask.digest


def _decisions_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decisions, "_remember", lambda *_: None)


def _options_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decisions, "_fault", lambda *_: None)


def _secrets_are_shown(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(showing.Mask, "__call__", lambda _, text: text)


def _reminded_for_ever(patch: pytest.MonkeyPatch) -> None:
    real = asking.next_due_ms

    def due(policy: object, ask: object) -> int:
        return real(msgspec.structs.replace(policy, reminders_max=99), ask)  # type: ignore[arg-type,type-var]

    patch.setattr(asking, "next_due_ms", due)


def _silence_has_no_outcome(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(silence, "fail_run", lambda *_: None)


def _a_skipped_step_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    real = effecting.TAKE[effecting.DecisionType.SKIP]

    def skip(draft: object, place: object, event: object) -> object:
        ruling = real(draft, place, event)  # type: ignore[arg-type]
        if ruling is None:
            draft.head.left += 1  # type: ignore[attr-defined]
        return ruling

    patch.setitem(effecting.TAKE, effecting.DecisionType.SKIP, skip)  # type: ignore[arg-type]


def _questions_stay_open(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(effecting, "_closed", lambda *_: None)
    patch.setattr(decisions, "WITH_PEOPLE", frozenset(effecting.READY.__class__))
    patch.setattr(decisions, "_remember", lambda *_: None)


def _packages_without_their_options(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(package, "options", lambda *_: ())


def _every_key_decides_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decisions, "rights_fault", lambda *_: "")


def _answers_have_any_type(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(effecting, "misfit", lambda *_: "")
    patch.setattr(information, "misfit", lambda *_: "")


def _unsafe_steps_close_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(routing, "close_gate", lambda *_, **__: None)


def _a_gate_does_not_wait_for_its_step(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(silence, "_steps_answer_by", lambda _: 0)


BREAKS: dict[str, Break] = {
    function.__name__[1:]: function
    for function in (
        _risky_steps_need_nobody,
        _an_approval_is_for_ever,
        _values_may_move,
        _digests_are_not_compared,
        _decisions_are_forgotten,
        _options_are_not_asked,
        _secrets_are_shown,
        _reminded_for_ever,
        _silence_has_no_outcome,
        _a_skipped_step_is_waited_for,
        _questions_stay_open,
        _packages_without_their_options,
        _every_key_decides_everything,
        _answers_have_any_type,
        _unsafe_steps_close_nothing,
        _a_gate_does_not_wait_for_its_step,
    )
}
