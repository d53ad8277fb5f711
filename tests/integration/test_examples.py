"""The examples that end with people, short, on a real Kafka, judged by their tables of facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from examples.documents import facts as documents_facts
from examples.documents.scenario import Scenario as Documents
from examples.documents.sources import documents
from examples.reconciliation import facts as reconciliation_facts
from examples.reconciliation.rules import accounts
from examples.reconciliation.scenario import Scenario as Reconciliation
from examples.stage import Stage

from dalsegno.client import RunResult
from dalsegno.ops.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def stage(kafka: EmbeddedKafka, fresh_prefix: str, tmp_path: Path) -> Stage:
    return Stage(tmp_path, bootstrap=kafka.bootstrap, prefix=fresh_prefix)


def nothing_told(what: str, ends: Mapping[str, RunResult]) -> None:
    """The tests look at the end only."""


def test_bookings_through_an_outage_longer_than_the_runs_live(stage: Stage) -> None:
    names = accounts(18, 7)
    with stage:
        scenario = Reconciliation(stage, names, nothing_told)
        scenario.up()
        scenario.play()
        assert stage.verified()
        found = reconciliation_facts.gather(stage.bootstrap, stage.topics, stage.folder, names)
        log = (stage.folder / "engine.log").read_text()
    assert found.faults == ()
    assert found.reconciled + found.taken_back == found.accounts == len(names)
    assert found.asked == found.retried + found.compensated
    assert min(found.asked, found.retried, found.compensated) > 0
    assert found.second_refused == found.compensated == found.taken_back
    assert found.unknown_done + found.unknown_not_done > 0
    assert "retry: Step book runs again" in scenario.shown
    assert "waits for nobody" not in log


def test_records_over_three_queues_with_an_editor(stage: Stage) -> None:
    seed = 3
    given = documents(9, seed)
    with stage:
        scenario = Documents(stage, given, seed, nothing_told)
        scenario.up()
        scenario.play()
        assert stage.verified()
        found = documents_facts.gather(stage.bootstrap, stage.topics, stage.folder, given)
        log = (stage.folder / "engine.log").read_text()
    assert found.faults == ()
    assert found.filed == found.documents == len(given)
    assert found.consumers == 3 * len(given) + found.rerun
    assert found.resumed > 0
    assert min(found.rerun, found.supplied, found.edited) > 0
    assert found.refused == 2, "a text for a map, and a field that the editor may not change"
    assert max(found.handoffs.values()) < 8_192, "handoffs carry inputs, not documents"
    assert "waits for nobody" not in log
