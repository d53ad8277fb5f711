"""The four groups over the example flows: normal; failure and retry; across queues and machines;
human takeover and on. Processes are killed and frozen at every boundary, in an order that a seed
decides; then Kafka, the services' books and what every consumer read must fit together.

The seed is printed; DALSEGNO_GROUPS_SEED takes another one (0: any), and repeats the schedule of
interruptions and the runs. What the operating system schedules in between is its own.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from examples.order.books import count
from examples.order.ledger import read as read_book
from examples.order.rules import Order
from examples.risk_control.ledger import read as read_risk_book
from examples.risk_control.rules import SERVICES as RISK_SERVICES
from tests.integration.engine.harness import Lab
from tests.integration.four_groups import checks
from tests.integration.four_groups.boundaries import (
    ENGINES,
    WORKERS,
    Act,
    Group,
    applicable,
    schedule,
)
from tests.integration.four_groups.observed import Evidence, gather
from tests.integration.four_groups.playing import PARTITIONS, Played, play, schedule_of
from tests.oracle.oracle import Oracle

from dalsegno.client import RunState
from dalsegno.ops.embedded import EmbeddedKafka
from dalsegno.ops.kafka.reader import Reader
from dalsegno.ops.report_screen import signal_rows
from dalsegno.ops.reporting import report_flows
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.signals.meaning import is_damage, is_given_up, is_mended

SEED = int(os.environ.get("DALSEGNO_GROUPS_SEED", "570183")) or time.time_ns() % 10**6
QUEUES = ("default", "back")
ENDS = {
    Group.NORMAL: {RunState.SUCCEEDED},
    Group.FAILURE: {RunState.SUCCEEDED, RunState.COMPENSATED},
    Group.MACHINES: {RunState.SUCCEEDED},
    # Its runs live 11 s; one whose steps are all well when that is over has just come too late.
    Group.PEOPLE: {
        RunState.SUCCEEDED,
        RunState.COMPENSATED,
        RunState.CANCELLED,
        RunState.EXPIRED,
    },
}


@pytest.mark.parametrize("group", Group)
def test_a_seed_has_one_schedule_and_it_has_every_boundary(group: Group) -> None:
    found = schedule(SEED, group)
    assert found == schedule(SEED, group)
    assert sorted(each.boundary for each in found) == sorted(applicable(group))
    assert {each.process for each in found} <= {*WORKERS, *ENGINES[group]}
    others = [schedule(seed, group) for seed in range(20)]
    assert len(set(map(tuple, others))) == 20
    assert {each.act for one in others for each in one} == set(Act)


@pytest.mark.kafka
@pytest.mark.parametrize("group", Group)
def test_group(
    group: Group,
    kafka: EmbeddedKafka,
    fresh_prefix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun = time.monotonic()
    played = play(group, Lab(kafka.bootstrap, fresh_prefix, tmp_path, PARTITIONS), SEED)
    problems, evidence = judged(played)
    with capsys.disabled():
        tell(group, played, evidence, time.monotonic() - begun)
    assert problems == []
    others = {run: end for run, end in played.ends.items() if end.state not in ENDS[group]}
    assert others == {}
    assert expired_while_hurt(played, evidence) == []
    as_scheduled(played)
    assert list(wrong_in_books(played)) == []
    assert list(wrong_in_report(played, evidence)) == []
    if group is Group.PEOPLE:
        assert played.decided["compensate"] > 0
        assert played.decided.total() > 1


def judged(played: Played) -> tuple[list[str], Evidence]:
    """All that the four checks find. Where outputs are missing, the others have no ground."""
    lab = played.lab
    problems = list(played.wrong)
    try:
        oracle = Oracle(lab, queues=QUEUES, fold=checks.Owned)
        evidence = gather(lab, QUEUES, played.folder)
    except AssertionError as error:  # from the reader of outputs: a gap, or other bytes
        return [*problems, f"replay: {error}"], Evidence({}, {}, [], [], {})
    problems += [f"replay: {each}" for each in oracle.problems()]
    problems += checks.newest(evidence, played.samples)
    problems += checks.minimal(evidence, lab.topics.heartbeats, lab.topics.control)
    folds = [fold for fold in oracle.folds.values() if isinstance(fold, checks.Owned)]
    problems += checks.sufficient(evidence, folds)
    return problems, evidence


def expired_while_hurt(played: Played, evidence: Evidence) -> list[str]:
    """Runs whose time just ended though a step was hurt: a person should have been asked."""
    wrong = []
    for run, end in played.ends.items():
        if end.state is not RunState.EXPIRED:
            continue
        hurt: set[str] = set()
        for _, transition in evidence.stories[run].transitions:
            if transition.cause == "timer:ttl" and hurt:
                wrong.append(f"{run} expired with {', '.join(sorted(hurt))} hurt")
            for change in transition.changes:
                if is_mended(change) or is_given_up(change):
                    hurt.discard(change.step)
                elif is_damage(change, transition):
                    hurt.add(change.step)
    return wrong


def as_scheduled(played: Played) -> None:
    """Every interruption of the schedule happened, in the order of its process."""
    planned = schedule_of(played.folder)
    for process in {each.process for each in planned}:
        mine = [each for each in planned if each.process == process]
        assert [each for each in played.hits if each.process == process] == mine


def wrong_in_books(played: Played) -> list[str]:
    """What the services' own books say that must not be: done twice, torn, sums that do not fit."""
    folder, wrong = played.folder, []
    orders = [Order(*each.inputs["order"].values()) for each in played.begun  # type: ignore[attr-defined]
              if "order" in each.inputs]  # fmt: skip
    books = count(folder, orders)
    wrong += [*books.twice, *books.sums_wrong, *(f"{name} is torn" for name in books.torn)]
    for name in RISK_SERVICES:
        done = Counter(each.application for each in read_risk_book(folder / f"risk-{name}.jsonl"))
        wrong += [f"{name} did {run} {n} times" for run, n in done.items() if n > 1]
    booked = Counter(each.key for each in read_book(folder / "booking.jsonl") if each.what == "do")
    wrong += [f"booked {key} {n} times" for key, n in booked.items() if n > 1]
    return wrong


def wrong_in_report(played: Played, evidence: Evidence) -> list[str]:
    """The report of each flow, against counts over the transitions as they lie in Kafka."""
    wrong = []
    with Reader(played.lab.settings) as reader:
        reports = report_flows(played.lab.settings, reader, 20)
    assert {each.flow for each in reports} == {each.flow.name for each in played.begun}
    for report in reports:
        runs = [each.run_id for each in played.begun if each.flow.name == report.flow]
        moves = [t for run in runs for _, t in evidence.stories[run].transitions]
        begun = Counter(
            (t.run_id, t.step) for t in moves
            if t.cause == "StepStarted" and t.outcome is Outcome.APPLIED
        )  # fmt: skip
        found = (report.runs, report.rework.attempts, report.rework.steps,
                 report.conflicts.superseded, report.conflicts.refused)  # fmt: skip
        right = (len(runs), begun.total(), len(begun),
                 sum(t.outcome is Outcome.SUPERSEDED for t in moves),
                 sum(t.outcome is Outcome.REFUSED for t in moves))  # fmt: skip
        if found != right:
            wrong.append(f"{report.flow}: {found}, counted {right}")
    return wrong


def tell(group: Group, played: Played, evidence: Evidence, took_s: float) -> None:
    """What happened, and the four signals."""
    states = Counter(str(end.state) for end in played.ends.values())
    sizes = [each.size_bytes for each in evidence.given]
    print(f"\n{group}: seed {SEED}, {took_s:.0f} s; {dict(states)}; "
          f"{len(evidence.given)} handoffs of {sum(sizes) // max(1, len(sizes))} bytes; "
          f"{len(evidence.reads)} bodies, {len(played.samples)} answers read; "
          f"decided {dict(played.decided)}")  # fmt: skip
    for hit in played.hits:
        print(f"  {hit.process:9} {hit.act:6} {hit.boundary} (time {hit.nth})")
    with Reader(played.lab.settings) as reader:
        for report in report_flows(played.lab.settings, reader, 20):
            said = "; ".join(f"{name} {value}" for name, value, _ in signal_rows(report))
            missing = {str(name): n for name, n in report.missing.items() if n}
            print(f"  report {report.flow}: {said}; missing {missing}")


FOUND_BY = {
    "old_version": "newest:",
    "whole_context": "minimal:",
    "stale_worker": "newest:",
    "lost_handoff": "replay:",
    "other_words": "replay:",
}


@pytest.mark.kafka
@pytest.mark.skipif("DALSEGNO_GROUPS_TEETH" not in os.environ, reason="DALSEGNO_GROUPS_TEETH=1")
@pytest.mark.parametrize("broken", FOUND_BY)
def test_each_check_has_teeth(
    broken: str, kafka: EmbeddedKafka, fresh_prefix: str, tmp_path: Path
) -> None:
    lab = Lab(kafka.bootstrap, fresh_prefix, tmp_path, PARTITIONS)
    played = play(Group.NORMAL, lab, SEED, breaks=(broken,))
    problems, _ = judged(played)
    assert [each for each in problems if each.startswith(FOUND_BY[broken])], problems
