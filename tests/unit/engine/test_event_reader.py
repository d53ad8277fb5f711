"""From consumed records to a fold: nothing in a batch stops it, and everything is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.unit.core.log import chain, dead_letters, pack, plan_of, step

from dalsegno.schemas import codec
from dalsegno.schemas.events import (
    FailureType,
    RiskFlagged,
    RunStarted,
    StepCompleted,
    StepFailed,
    StepStarted,
)
from dalsegno.schemas.intake import Intake
from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.outputs import Outcome
from dalsegno.streams.core.partition import EVENTS_TOPIC, Partition
from dalsegno.streams.engine.applying import Applying
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.raw import RawEvent
from dalsegno.streams.engine.reader import EventReader

AT_MS = 1_700_000_000_000


def test_signals_of_a_run_that_drives_itself_are_those_of_its_flow() -> None:
    """It gets no handoff that would name the flow."""
    own = plan_of(step("a", queue=""))
    events = (
        RunStarted(run_id="r", flow="billing", flow_version=1, plan=own, context=pack({})),
        StepStarted(run_id="r", step="a", epoch=0, attempt=1),
        StepFailed(run_id="r", step="a", epoch=0, attempt=1, failure_type=FailureType.TRANSIENT),
        StepStarted(run_id="r", step="no such step", epoch=0, attempt=1),
        StepCompleted(run_id="r", step="a", epoch=0, attempt=2, ops=b"\x90"),
    )
    raw = [RawEvent(i, AT_MS + i, b"r", codec.encode(e), ()) for i, e in enumerate(events)]
    partition, metrics = Partition(0), EngineMetrics()
    reader = EventReader(Intake(EVENTS_TOPIC, 1, Keyring({})), 0)
    nowhere = SimpleNamespace(add=lambda _outputs: None, flush=lambda: None)
    applying = Applying(
        cast("Any", SimpleNamespace(records=raw)),
        partition,
        cast("Any", nowhere),
        reader,
        metrics.signals,
    )
    assert applying.slice(lambda: 0.0)
    metrics.signals.flush()
    page = metrics.text().decode()
    assert 'dalsegno_state_conflicts_total{flow="billing"} 1.0' in page
    assert 'dalsegno_recovery_seconds_count{flow="billing"} 1.0' in page
    assert 'flow="other"' not in page


def test_of_ten_records_two_are_bad_and_eight_are_handled() -> None:
    """R033: one cut at the border of two values, and one without any bytes."""
    started = RunStarted(run_id="r", flow="f", flow_version=1, plan=chain(1), context=pack({}))
    flags = [RiskFlagged(run_id="r", flag_id=f"id-{i}", flag="odd") for i in range(7)]
    values = [codec.encode(each) for each in (started, *flags)]
    cut = values[1][: values[1].index(b"id-0") + len(b"id-0")]
    values[4:4] = [cut]
    values[8:8] = [b""]
    raw = [RawEvent(i, AT_MS, b"r", value, ()) for i, value in enumerate(values)]
    partition = Partition(0)
    reader = EventReader(Intake(EVENTS_TOPIC, 1, Keyring({})), 0)
    outputs = [out for record in reader.read(partition, raw) for out in partition.apply(record)]
    letters = dead_letters(outputs)
    assert [(each.letter.offset, each.letter.reason) for each in letters] == [
        (4, "bad_body"),
        (8, "bad_frame"),
    ]
    assert [each.value for each in letters] == [cut, b""]
    assert partition.counts[Outcome.APPLIED] == 8
    assert partition.counts[Outcome.DEAD_LETTERED] == 2
    assert sum(partition.counts.values()) + partition.waiting == len(values) == 10
