"""The catalogue is documented, bounded, and what the engine registers."""

from __future__ import annotations

from pathlib import Path

from tests.unit.core.log import Log, chain
from tests.unit.engine.test_encoding import transition
from tests.unit.people.asking import asked, decide, failed

from dalsegno.schemas.outputs import Outcome, StepChange, StepState
from dalsegno.streams.core.actions import Audit, Output
from dalsegno.streams.core.sequence import Sequence
from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.metrics_doc import page

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_page_is_the_catalogue() -> None:
    assert DOCS.read_text(encoding="utf-8") == page()


def test_every_label_is_bounded_by_something_said() -> None:
    names = [metric.name for metric in catalogue.CATALOGUE]
    assert len(names) == len(set(names))
    for metric in catalogue.CATALOGUE:
        assert set(metric.labels) <= catalogue.LABELS.keys(), metric.name
        assert (metric.kind is catalogue.Kind.HISTOGRAM) == bool(metric.buckets)


def test_flows_beyond_the_bound_share_one_value() -> None:
    metrics = EngineMetrics()
    for i in range(catalogue.FLOWS_MAX + 25):
        metrics.count(catalogue.DISPATCHED, flow=f"flow-{i}")
    lines = [
        line
        for line in metrics.text().decode().splitlines()
        if line.startswith("dalsegno_steps_dispatched_total{")
    ]
    assert len(lines) == catalogue.FLOWS_MAX + 1
    assert 'dalsegno_steps_dispatched_total{flow="other"} 25.0' in lines


def moved(
    metrics: EngineMetrics, at_ms: int, before: StepState, after: StepState, *, epoch: int = 1
) -> None:
    changes = (StepChange(step="s", before=before, after=after, epoch=epoch),)
    audit = Audit(transition(at_ms=at_ms, changes=changes))
    metrics.signals.outputs([Output(Sequence(0, 0, 1), audit)])


def test_recovery_runs_from_the_first_failure_to_the_completion() -> None:
    metrics = EngineMetrics()
    moved(metrics, 1_000, StepState.RUNNING, StepState.BACKING_OFF)
    moved(metrics, 9_000, StepState.RUNNING, StepState.BACKING_OFF)
    moved(metrics, 13_500, StepState.RUNNING, StepState.COMPLETED)
    metrics.signals.outputs(
        [Output(Sequence(1, 0, 1), Audit(transition(outcome=Outcome.REFUSED, reason="why")))]
    )
    metrics.signals.flush()
    text = metrics.text().decode()
    assert 'dalsegno_recovery_seconds_sum{flow="other"} 12.5' in text
    assert 'dalsegno_refusals_total{reason="why"} 1.0' in text
    assert 'dalsegno_outputs_total{channel="transitions"} 4.0' in text


def test_handoffs_that_nobody_starts_are_counted_by_flow() -> None:
    metrics = EngineMetrics()
    for cause, outcome in (
        ("timer:start_limit", Outcome.APPLIED),
        ("StepReleased", Outcome.APPLIED),
        ("StepReleased", Outcome.SUPERSEDED),
        ("timer:timeout", Outcome.APPLIED),
    ):
        audit = Audit(transition(cause=cause, outcome=outcome))
        metrics.signals.outputs([Output(Sequence(0, 0, 1), audit)])
    metrics.signals.flush()
    assert 'dalsegno_steps_unstarted_total{flow="other"} 2.0' in metrics.text().decode()


def test_decisions_are_timed_and_reminders_are_no_questions() -> None:
    metrics = EngineMetrics()
    log = Log()
    log.start(chain(1))
    log.began("s0")
    package = asked(failed(log, "s0"))
    log.now_ms += 3_600_000
    log.tick(1)
    decide(log, package, "retry")
    metrics.signals.outputs(log.outputs)
    metrics.signals.flush()
    text = metrics.text().decode()
    assert 'dalsegno_escalations_total{flow="flow"} 1.0' in text
    assert 'dalsegno_escalation_reminders_total{flow="flow"} 1.0' in text
    assert 'dalsegno_escalation_decision_seconds_sum{flow="flow"} 3601.0' in text


def test_a_step_given_out_again_at_once_was_damaged_and_one_whose_turn_came_was_not() -> None:
    metrics = EngineMetrics()
    moved(metrics, 1_000, StepState.HELD, StepState.READY, epoch=2)
    moved(metrics, 2_000, StepState.RUNNING, StepState.DISPATCHED, epoch=2)
    moved(metrics, 5_000, StepState.RUNNING, StepState.COMPLETED, epoch=2)
    metrics.signals.flush()
    assert 'dalsegno_recovery_seconds_sum{flow="other"} 3.0' in metrics.text().decode()
