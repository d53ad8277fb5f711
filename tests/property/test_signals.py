"""The signals of random logs, against figures computed another way from the same log."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import pairwise
from statistics import fmean, median

import pytest
from tests.property.troubled_log import FLOWS, TroubledLog

from dalsegno.schemas.outputs import Escalation, Transition
from dalsegno.streams.core.signals.figures import FlowReport, Spread
from dalsegno.streams.core.signals.sums import Sums
from dalsegno.streams.core.signals.tally import Tally

EVENTS = 700
CASES = [(seed, flow) for seed in range(10) for flow in FLOWS]
ENDED = {"succeeded", "failed", "compensated", "cancelled", "expired"}
GONE_OVER = {"skipped", "compensating", "compensated"}
UNDONE = {"ready", "pending", "held", "dispatched", "backing_off", "missing_info", "escalated",
          "awaiting_approval"}  # fmt: skip
STUCK = {"missing_info", "escalated"}
OWN_END = {"StepFailed", "StepCompleted"}


@cache
def history(seed: int) -> tuple[TroubledLog, dict[str, FlowReport]]:
    """A log, and what the tally reports of each flow."""
    log, tally = TroubledLog(seed, EVENTS), Tally(0)
    for record, outputs in zip(log.records, log.by_record, strict=True):
        tally.see(record, outputs)
    return log, {flow: sums.report(flow, 10**6) for flow, sums in tally.sums().items()}


def runs_of(log: TroubledLog, flow: str) -> dict[str, list[Transition | Escalation]]:
    """The lines of each run of a flow, from its start on."""
    found: dict[str, list[Transition | Escalation]] = {}
    for line in log.lines:
        starts = isinstance(line, Transition) and line.cause == "RunStarted"
        if log.flow_of[line.run_id] == flow and (starts or line.run_id in found):
            found.setdefault(line.run_id, []).append(line)
    return found


def life(lines: list[Transition | Escalation]) -> list[Transition]:
    """What was applied while the run lived."""
    return [
        line
        for line in lines
        if isinstance(line, Transition) and line.outcome not in {"superseded", "refused"}
    ]


def moves(lines: list[Transition | Escalation]) -> dict[str, list[tuple[Transition, str, str]]]:
    """By step: where it came from and went to, and by what."""
    found: dict[str, list[tuple[Transition, str, str]]] = {}
    for each in life(lines):
        for change in each.changes:
            move = (each, str(change.before), str(change.after))
            found.setdefault(change.step, []).append(move)
    return found


def damages(each: Transition, step: str, was: str, now: str) -> bool:
    own_end = each.cause in OWN_END and each.step == step
    if was == "running":
        return now in UNDONE
    if was == "dispatched":
        return now in UNDONE and each.cause == "StallSuspected"
    if now in STUCK:
        return was not in STUCK
    return now == "backing_off" and own_end


@pytest.mark.parametrize(("seed", "flow"), CASES)
def test_conflicts_are_superseded_and_refused_per_event(seed: int, flow: str) -> None:
    log, reports = history(seed)
    runs = runs_of(log, flow)
    conflicts = reports[flow].conflicts
    of_runs = Counter(getattr(record.event, "run_id", "") for record in log.records)
    assert conflicts.events == sum(of_runs[run_id] for run_id in runs)
    outcomes = Counter(
        line.outcome for lines in runs.values() for line in lines if isinstance(line, Transition)
    )
    assert conflicts.superseded == outcomes["superseded"]
    assert conflicts.refused == outcomes["refused"]
    assert conflicts.rate == (outcomes["superseded"] + outcomes["refused"]) / conflicts.events


@pytest.mark.parametrize("seed", range(10))
def test_conflicts_are_those_that_the_partition_has_counted(seed: int) -> None:
    log, reports = history(seed)
    known = {run_id for flow in FLOWS for run_id in runs_of(log, flow)}
    strangers = [line for line in log.lines if line.run_id not in known]
    assert strangers == [], "every run of these logs starts"
    counts = log.partition.counts
    found = [report.conflicts for report in reports.values()]
    assert sum(each.superseded for each in found) == counts["superseded"]
    assert sum(each.refused for each in found) == counts["refused"]


@pytest.mark.parametrize(("seed", "flow"), CASES)
def test_rework_is_attempts_beyond_the_first_per_step(seed: int, flow: str) -> None:
    log, reports = history(seed)
    begun: Counter[tuple[str, str]] = Counter()
    for run_id, lines in runs_of(log, flow).items():
        started = {id(each): each.step for each in life(lines) if each.cause == "StepStarted"
                   and each.outcome == "applied"}  # fmt: skip
        begun.update((run_id, step) for step in started.values())
        for step, found in moves(lines).items():
            begun[run_id, step] += sum(
                id(each) not in started
                and was != "running"
                and (now == "running" or (each.cause in OWN_END and each.step == step))
                for each, was, now in found
            )
    rework = reports[flow].rework
    assert rework.attempts == begun.total()
    assert rework.steps == sum(count > 0 for count in begun.values())
    assert rework.rate == (rework.attempts - rework.steps) / max(1, rework.steps)


@pytest.mark.parametrize(("seed", "flow"), CASES)
def test_time_to_recovery_is_from_first_damage_to_completion(seed: int, flow: str) -> None:
    log, reports = history(seed)
    took: list[int] = []
    given_up = left = 0
    for lines in runs_of(log, flow).values():
        ended = bool(life(lines)) and life(lines)[-1].run_state_after in ENDED
        for step, found in moves(lines).items():
            since: int | None = None
            for each, was, now in found:
                if damages(each, step, was, now):
                    since = each.at_ms if since is None else since
                elif since is not None and now == "completed" != was:
                    took.append(each.at_ms - since)
                    since = None
                elif since is not None and now in GONE_OVER:
                    given_up += 1
                    since = None
            given_up += since is not None and ended
            left += since is not None and not ended
    recovery = reports[flow].recovery
    assert (recovery.took.count, recovery.given_up, recovery.open) == (len(took), given_up, left)
    assert recovery.mean_ms == (pytest.approx(fmean(took)) if took else 0)
    assert recovery.took == Spread.of(took)


@pytest.mark.parametrize(("seed", "flow"), CASES)
def test_clarity_is_time_to_decision_and_what_was_asked_again(seed: int, flow: str) -> None:
    log, reports = history(seed)
    asked = again = 0
    took: list[int] = []
    for lines in runs_of(log, flow).values():
        questions = [
            (at, line) for at, line in enumerate(lines)
            if isinstance(line, Escalation) and line.asked != "notice" and not line.reminder
        ]  # fmt: skip
        asked += len(questions)
        again += len(questions) - len({line.step for _, line in questions})
        for at, line in enumerate(lines):
            if isinstance(line, Transition) and line.cause == "DecisionMade" and (
                line.outcome == "applied"
            ):  # fmt: skip
                before = [q for place, q in questions if place < at and q.step == line.step]
                took.append(line.at_ms - before[-1].at_ms)
    clarity = reports[flow].clarity
    assert (clarity.asked, clarity.again) == (asked, again)
    assert clarity.took == Spread.of(took)
    assert clarity.asked == clarity.took.count + clarity.open + clarity.unanswered
    still = sum(
        package.run_id in log.flow_of
        and log.flow_of[package.run_id] == flow
        and waits(log, package)
        for package in log.asked.values()
    )
    assert clarity.open == still


def waits(log: TroubledLog, package: Escalation) -> bool:
    """Whether the run's own state says that somebody is waited for."""
    view = log.partition.run(package.run_id)
    if view is None or view.kind != "run":
        return False
    if not package.step:
        return bool(view.gate)
    state = next(step.state for step in view.steps if step.step == package.step)
    return state in {"escalated", "missing_info", "awaiting_approval"}


@pytest.mark.parametrize(("seed", "flow"), CASES)
def test_every_run_is_counted_once_and_troubled_ones_come_newest_first(
    seed: int, flow: str
) -> None:
    log, reports = history(seed)
    report, runs = reports[flow], runs_of(log, flow)
    assert report.runs == len(runs)
    for run in report.troubled:
        assert log.flow_of[run.run_id] == flow
        assert run.last_ms == max(each.at_ms for each in run.findings)
        assert list(run.findings) == sorted(run.findings, key=lambda each: each.at_ms)
    assert all(a.last_ms >= b.last_ms for a, b in pairwise(report.troubled))
    assert report.troubled_runs == len({run.run_id for run in report.troubled})
    # A run that lost an attempt by anything but a quiet end was in trouble.
    hurt = {
        run_id
        for run_id, lines in runs.items()
        for step, found in moves(lines).items()
        if any(damages(each, step, was, now) for each, was, now in found)
    }
    assert hurt <= {run.run_id for run in report.troubled}


def test_partitions_add_up() -> None:
    whole, parts = Sums(), []
    for seed in range(3):
        log, tally = history(seed)[0], Tally(seed)
        for record, outputs in zip(log.records, log.by_record, strict=True):
            tally.see(record, outputs)
        parts.append(history(seed)[1]["rough"])
        whole.add(tally.sums()["rough"])
    report = whole.report("rough", 5)
    assert report.runs == sum(each.runs for each in parts)
    assert report.recovery.took.count == sum(each.recovery.took.count for each in parts)
    assert report.rework.attempts == sum(each.rework.attempts for each in parts)
    assert report.troubled_runs == sum(each.troubled_runs for each in parts)
    assert len(report.troubled) == 5


def test_a_spread_is_what_statistics_say() -> None:
    took = [5, 1, 9, 7]
    spread = Spread.of(took)
    assert (spread.mean_ms, spread.median_ms) == (fmean(took), median(took))
    assert (spread.p95_ms, spread.max_ms) == (9, 9)
    assert Spread.of(list(range(1, 101))).p95_ms == 95
    assert Spread.of([]) == Spread()
