"""The closing table: what the ledgers and the log say, none of it from dalsegno's own counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from dalsegno.schemas.events import RunStarted, StepCompleted, StepStarted
from dalsegno.schemas.outputs import Outcome, RunState, Transition
from dalsegno.schemas.topics import Topics
from dalsegno.streams.core.run_table import FINAL_RUNS
from dalsegno.streams.core.signals.meaning import is_damage, is_mended
from examples.risk_control import ledger
from examples.risk_control.log import read
from examples.risk_control.rules import SERVICES, expected


class Facts(NamedTuple):
    """Counts over the whole demo; times in seconds."""

    runs: int
    finished_right: int
    finished_wrong: int
    lost: int
    effects: int
    applied_twice: int
    contradictory: int
    damaged_steps: int
    recovery_mean_s: float
    recovery_max_s: float
    attempts: int
    completed_steps: int

    @property
    def rework_rate(self) -> float:
        """Attempts beyond the first, per completed step."""
        return (self.attempts - self.completed_steps) / max(1, self.completed_steps)

    @property
    def right(self) -> bool:
        """Nothing lost, nothing done twice, every run as computed beforehand."""
        return (
            self.finished_right == self.runs
            and self.lost == self.finished_wrong == 0
            and self.applied_twice == self.contradictory == 0
        )


def gather(bootstrap: str, topics: Topics, ledgers: Path, seed: int, applications: int) -> Facts:
    """Read the events, the transitions and the seven ledgers."""
    started = {
        row.record.run_id
        for row in read(bootstrap, topics.events)
        if isinstance(row.record, RunStarted)
    }
    transitions = [
        row.record
        for row in read(bootstrap, topics.transitions)
        if isinstance(row.record, Transition)
    ]
    ended: dict[str, RunState] = {}
    for change in transitions:
        if (
            change.run_state_after in FINAL_RUNS
            and change.run_state_before != change.run_state_after
        ):
            ended[change.run_id] = change.run_state_after
    books = {name: list(ledger.read(ledgers / f"{name}.jsonl")) for name in SERVICES}
    wrong = _wrong_applications(books, seed, applications)
    right = sum(
        state is RunState.SUCCEEDED and run_id not in wrong for run_id, state in ended.items()
    )
    repairs = _repairs(transitions)
    return Facts(
        runs=len(started),
        finished_right=right,
        finished_wrong=len(ended) - right,
        lost=len(started - ended.keys()),
        effects=sum(map(len, books.values())),
        applied_twice=_applied_twice(books),
        contradictory=_contradictory(books),
        damaged_steps=len(repairs),
        recovery_mean_s=fmean(repairs) if repairs else 0.0,
        recovery_max_s=max(repairs, default=0.0),
        attempts=_applied(transitions, StepStarted.__name__),
        completed_steps=_applied(transitions, StepCompleted.__name__),
    )


def _applied(transitions: list[Transition], cause: str) -> int:
    return sum(t.cause == cause and t.outcome is Outcome.APPLIED for t in transitions)


def _applied_twice(books: dict[str, list[ledger.Entry]]) -> int:
    """Effects beyond the first of a key, or of an application at a service."""
    total = 0
    for entries in books.values():
        total += len(entries) - len({entry.key for entry in entries})
        per_application = Counter(entry.application for entry in entries)
        total += sum(count - 1 for count in per_application.values())
    return total


def _contradictory(books: dict[str, list[ledger.Entry]]) -> int:
    """Applications with two different scores, or a decision taken on another score."""
    scores: dict[str, set[object]] = defaultdict(set)
    for entry in books["scoring"]:
        scores[entry.application].add(entry.answer["score"])
    for entry in books["decision"]:
        scores[entry.application].add(entry.answer["on_score"])
    return sum(len(found) > 1 for found in scores.values())


def _wrong_applications(
    books: dict[str, list[ledger.Entry]], seed: int, applications: int
) -> set[str]:
    """Applications whose decision differs from the one computed without any fault."""
    decided = {entry.application: entry.answer for entry in books["decision"]}
    wrong = set()
    for number in range(applications):
        right, name = expected(number, seed), f"app-{seed}-{number:04d}"
        answer = decided.get(name, {})
        if answer != {"decision": right["decision"], "on_score": right["on_score"]}:
            wrong.add(name)
    return wrong


def _repairs(transitions: list[Transition]) -> list[float]:
    """Seconds from a step's first damage to its completion, for each step that was damaged; damage
    is what `dalsegno report` calls so.
    """
    damaged: dict[tuple[str, str], int] = {}
    repairs = []
    for transition in transitions:
        for change in transition.changes:
            step = (transition.run_id, change.step)
            if is_mended(change):
                since = damaged.pop(step, None)
                if since is not None:
                    repairs.append((transition.at_ms - since) / 1000)
            elif is_damage(change, transition):
                damaged.setdefault(step, transition.at_ms)
    return repairs
