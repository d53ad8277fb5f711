"""What was added to the log while it was judged is no fault of what was found."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.chaos.inside import judge
from tests.chaos.inside.judge import TRIES, Verdict

ORACLE = SimpleNamespace(problems=lambda: ["a problem"])


def judged(patches: pytest.MonkeyPatch, ends: Iterator[int], found: list[Any]) -> Verdict:
    """With these ends of the log, two for a try, and what each try finds."""

    def oracle(_: object) -> Any:
        each = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(each, AssertionError):
            raise each
        return each

    patches.setattr(judge, "wait_quiet", lambda _: None)
    patches.setattr(judge, "ends_of", lambda _: [next(ends)])
    patches.setattr(judge, "Oracle", oracle)
    patches.setattr(judge, "measure", lambda *_: None)
    verdict = Verdict()
    judge.judge_log(SimpleNamespace(), verdict, set())  # type: ignore[arg-type]
    return verdict


def test_a_gap_in_a_log_that_grew_meanwhile_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = judged(monkeypatch, iter([1, 2, 2, 2]), [AssertionError("a gap"), ORACLE])
    assert verdict.broken == ["a problem"]


def test_a_gap_in_a_log_at_rest_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(monkeypatch, iter([1, 1]), [AssertionError("a gap")])
    assert verdict.broken == ["outputs: a gap"]


def test_a_log_that_never_rests_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = judged(monkeypatch, iter(range(2 * TRIES)), [AssertionError("a gap")])
    assert verdict.broken == [f"never at rest: {TRIES} times something was added to the events"]
