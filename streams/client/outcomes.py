"""What became of the runs and requests of one client, as told by answers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dalsegno.schemas import values
from dalsegno.schemas.events import PlanExtended, RunStarted
from dalsegno.schemas.outputs import Answer, AnswerType, RunState
from dalsegno.schemas.values import Value
from dalsegno.streams.client.errors import ReportRefused, RunRefused, WaitTimeout
from dalsegno.streams.core.run_table import FINAL_RUNS

_NEGATIVE = frozenset({AnswerType.REFUSED, AnswerType.SUPERSEDED, AnswerType.CANCELLED})
_STARTS = frozenset({RunStarted.__name__, PlanExtended.__name__})
_POSITIVE = frozenset({AnswerType.ACCEPTED, AnswerType.DUPLICATE})
# Why an attempt of a service is over: there is one with a higher number.
_NEWER = "newer_attempt"
_OVERTAKEN = frozenset({_NEWER, "older_attempt"})
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `context` is None where it was too large for the answer
    (`context_omitted`).
    """

    run_id: str
    state: RunState
    run_version: int
    context: dict[str, Value] | None
    context_omitted: bool
    reason: str
    detail: str

    @property
    def succeeded(self) -> bool:
        return self.state is RunState.SUCCEEDED


class _Told:
    """Answers about one run that nobody has asked for yet.

    `parts`: records that its start was sent in; `extended`: offsets of those behind the first that
    were taken. `attempts`: by step, the highest attempt that this client has reported on.
    `overtaken`: steps with a lower one as well; what that one is told goes to `lower_refused`, and
    stops no other. `first`: by step, the highest attempt and the offset of its first report.
    `rivals`: by step, the last report, by its offset, that began another attempt.
    """

    __slots__ = (
        "attempts",
        "ended",
        "extended",
        "first",
        "lower_refused",
        "overtaken",
        "own",
        "parts",
        "refused",
        "refused_reports",
        "replies",
        "rivals",
    )

    def __init__(self) -> None:
        self.attempts: dict[str, int] = {}
        self.overtaken: set[str] = set()
        self.first: dict[str, tuple[int, int]] = {}
        self.rivals: dict[str, tuple[int, ReportRefused]] = {}
        self.lower_refused: dict[str, ReportRefused] = {}
        self.own = False
        self.parts = 1
        self.extended: set[int] = set()
        self.ended: RunResult | None = None
        self.refused: RunRefused | None = None
        self.refused_reports: dict[str, ReportRefused] = {}
        self.replies: dict[str, Answer] = {}


class Outcomes:
    """Thread-safe. Remembers the last `most` runs, so that an answer may come before its
    question.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._runs: OrderedDict[str, _Told] = OrderedDict()
        self._changed = threading.Condition()

    def tell(self, answer: Answer, offset: int = -1) -> bool:
        """Take an answer to the event at `offset` in; called by the reader's thread. False if it
        only concerns an attempt of this client that another one of its own has overtaken.
        """
        with self._changed:
            told = self._of(answer.run_id)
            # Answers name no attempt. Whether the higher one is overtaken too, elsewhere, shows by
            # the offset, once that of its own first report is known.
            lower = answer.reason in _OVERTAKEN and answer.step in told.overtaken
            # A start that is sent again is told at once if its run has ended.
            if answer.answer is AnswerType.ENDED or (
                answer.answer is AnswerType.DUPLICATE and answer.run_state in FINAL_RUNS
            ):
                told.ended = _result(answer)
            elif answer.kind in _STARTS and answer.answer is AnswerType.REFUSED:
                told.refused = RunRefused(answer.run_id, answer.reason, answer.detail)
            elif answer.kind == PlanExtended.__name__:
                told.extended.add(offset)  # what comes twice is one part
            elif answer.step and answer.answer in _NEGATIVE:
                refused = told.lower_refused if lower else told.refused_reports
                refused[answer.step] = ReportRefused(answer)
                if lower and answer.reason == _NEWER:
                    told.rivals[answer.step] = (offset, ReportRefused(answer))
            told.replies[answer.kind] = answer
            self._changed.notify_all()
        return not lower

    def begin(self, run_id: str, parts: int = 1) -> None:
        """A start is about to be sent, in so many parts: a refusal of an earlier one says nothing
        about it.
        """
        with self._changed:
            before = self._runs.pop(run_id, None)
            told = self._of(run_id)
            told.own, told.parts = True, parts
            if before is not None:  # its attempts are what they were
                told.attempts, told.overtaken = before.attempts, before.overtaken
                told.first, told.rivals = before.first, before.rivals

    def wait_own(self, run_id: str, timeout_s: float) -> RunResult | None:
        """The end of a run that this client has started; None at once for any other.

        None as well when the service says that the run was there before: it tells its end to
        whoever began it. Raises `RunRefused`, `ReportRefused` for a run that is only reported on,
        `WaitTimeout`.
        """

        def seen(told: _Told) -> tuple[RunResult | None] | None:
            end = _end(told)
            return None if end is None and _is_told(told) else (end,)

        return self._wait(run_id, seen, timeout_s, "the run has not ended")[0]

    def wait_started(self, run_id: str, timeout_s: float, given_s: float | None = None) -> None:
        """The service has taken the start of this run, every part of it, or has it already.
        `given_s`: what the caller gave for the whole of it, by default `timeout_s`.

        Raises `RunRefused`, `WaitTimeout`.
        """

        def seen(told: _Told) -> bool | None:
            if told.refused is not None:
                raise told.refused
            taken = RunStarted.__name__ in told.replies and len(told.extended) >= told.parts - 1
            return told.ended is not None or taken or None

        self._wait(run_id, seen, timeout_s, "no answer to its start", given_s)

    def told(self, run_id: str) -> RunResult | None:
        """What `wait_own` would return if anything has been told by now."""
        with self._changed:
            told = self._runs.get(run_id)
            return _end(told) if told else None

    def ended(self, run_id: str) -> RunResult | None:
        """How the run ended, if that is known by now."""
        with self._changed:
            told = self._runs.get(run_id)
            return told.ended if told else None

    def forget_reply(self, run_id: str, kind: str) -> None:
        """Before a request: an answer to an earlier one must not pass for its own."""
        with self._changed:
            self._of(run_id).replies.pop(kind, None)

    def wait_reply(self, run_id: str, kind: str, timeout_s: float) -> Answer:
        """The answer to a request about a run. Raises `RunRefused`, `ReportRefused`,
        `WaitTimeout`.
        """

        def seen(told: _Told) -> Answer | None:
            answer = told.replies.get(kind)
            if answer is None or answer.answer in _POSITIVE:
                return answer
            raise told.refused or ReportRefused(answer)

        return self._wait(run_id, seen, timeout_s, f"no answer to {kind}")

    def check_report(self, run_id: str, step: str, attempt: int) -> None:
        """Before a report: raises the `ReportRefused` that an earlier one of this attempt brought,
        once.
        """
        with self._changed:
            told = self._of(run_id)
            highest = told.attempts.get(step, attempt)
            if attempt != highest:
                told.overtaken.add(step)
            if attempt > highest and (earlier := told.refused_reports.pop(step, None)):
                told.lower_refused[step] = earlier
            told.attempts[step] = max(attempt, highest)
            refusals = told.lower_refused if attempt < highest else told.refused_reports
            refused = refusals.pop(step, None) or _overtaken(told, step, attempt)
        if refused is not None:
            raise refused

    def reported(self, run_id: str, step: str, attempt: int, offset: int) -> None:
        """The log has a report of this attempt there."""
        with self._changed:
            first = self._of(run_id).first
            if step not in first or attempt > first[step][0]:
                first[step] = (attempt, offset)

    def _of(self, run_id: str) -> _Told:
        told = self._runs.get(run_id)
        if told is None:
            told = self._runs[run_id] = _Told()
            if len(self._runs) > self._most:
                self._runs.popitem(last=False)
        return told

    def _wait(
        self,
        run_id: str,
        seen: Callable[[_Told], R | None],
        timeout_s: float,
        waiting_for: str,
        given_s: float | None = None,
    ) -> R:
        found: list[R] = []

        def look() -> bool:
            value = seen(self._of(run_id))
            if value is not None:
                found.append(value)
            return bool(found)

        with self._changed:
            if not self._changed.wait_for(look, timeout_s):
                said_s = timeout_s if given_s is None else given_s
                raise WaitTimeout(f"run {run_id!r}: {waiting_for} within {said_s:g} s")
        return found[0]


def _overtaken(told: _Told, step: str, attempt: int) -> ReportRefused | None:
    """What another one's report says to this attempt: it began a newer one behind our first."""
    highest, first = told.first.get(step, (-1, -1))
    offset, refused = told.rivals.get(step, (-1, None))
    if refused is None or attempt != highest or offset <= first:
        return None
    del told.rivals[step]
    return refused


def _end(told: _Told) -> RunResult | None:
    if told.refused is not None:
        raise told.refused
    if told.ended is None and RunStarted.__name__ not in told.replies:
        for refused in told.refused_reports.values():
            raise refused
    return told.ended


def _is_told(told: _Told) -> bool:
    """Whether this client will hear of the run's end."""
    started = told.replies.get(RunStarted.__name__)
    return told.own and (started is None or started.answer is not AnswerType.DUPLICATE)


def _result(answer: Answer) -> RunResult:
    return RunResult(
        run_id=answer.run_id,
        state=answer.run_state or RunState.FAILED,
        run_version=answer.run_version,
        context=values.unpack_map(answer.context) if answer.context else None,
        context_omitted=answer.context_omitted,
        reason=answer.reason,
        detail=answer.detail,
    )
