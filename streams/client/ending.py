"""Waiting for the end of one run: told by an answer, or asked of an engine."""

from __future__ import annotations

import time
from typing import Final

from dalsegno.streams.client.engines import PAUSE_FIRST_S, PAUSE_MAX_S, Engines, Place, Question
from dalsegno.streams.client.errors import EngineUnavailable, WaitTimeout
from dalsegno.streams.client.outcomes import Outcomes, RunResult
from dalsegno.streams.client.views import result_of

_ASK_S: Final = 5.0
"""One question's wait; in between, answers that came to this client are looked at."""


class Ending:
    """One call of `Client.wait`, in the thread of its caller."""

    def __init__(self, place: Place, outcomes: Outcomes, engines: Engines) -> None:
        self._run_id = place.run_id
        self._outcomes = outcomes
        self._question = Question(engines, place)
        self._seen = "nothing was heard of it"

    def wait(self, timeout_s: float) -> RunResult:
        """Raises `RunRefused`, `ReportRefused`, `UnknownRun`, `WaitTimeout`, `SettingsError`."""
        run_id = self._run_id
        deadline = time.monotonic() + timeout_s
        end = self._outcomes.wait_own(run_id, timeout_s)
        pause_s = PAUSE_FIRST_S
        while end is None:
            left_s = max(0.0, deadline - time.monotonic())
            trouble: EngineUnavailable | None = None
            try:
                end = self._ask(min(left_s, _ASK_S))
                pause_s = PAUSE_FIRST_S
            except EngineUnavailable as error:
                trouble = error
            # An answer may have come while the engine was asked.
            end = end or self._outcomes.told(run_id)
            if end is None:
                self._may_go_on(deadline, timeout_s, trouble)
                if trouble is not None:
                    time.sleep(max(0.0, min(pause_s, deadline - time.monotonic())))
                    pause_s = min(PAUSE_MAX_S, pause_s * 2)
        return end

    def _may_go_on(self, deadline: float, timeout_s: float, trouble: Exception | None) -> None:
        if time.monotonic() >= deadline:
            last = str(trouble) if trouble is not None else self._seen
            raise WaitTimeout(
                f"run {self._run_id!r}: not ended within {timeout_s:g} s; {last}"
            ) from trouble

    def _ask(self, wait_s: float) -> RunResult | None:
        if not self._question.reaches_end:
            self._question.reach_end()
        view = self._question.ask(wait_s, until_ended=True)
        if view.refusal is not None:
            raise view.refusal
        self._seen = f"it is {view.state or view.kind} at run version {view.run_version}"
        return result_of(view)
