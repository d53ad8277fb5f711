"""A run on which the fold raised while it was taken back: it waits, bounded, and loses nothing."""

from __future__ import annotations

import pytest
from tests.unit.core.log import Log, assert_restores, view
from tests.unit.saga.orders import did, failed, given, order, until_paid

from dalsegno.schemas.control import Policy
from dalsegno.schemas.events import RiskFlagged, RunCancelled
from dalsegno.schemas.outputs import RunState

WAIT_MS = Policy().person_wait_ms


def raising(*_: object, **__: object) -> None:
    raise ZeroDivisionError("ours")


def put_aside(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    """An event on which the fold raises."""
    with monkeypatch.context() as patch:
        patch.setattr("dalsegno.streams.core.lifecycle.raise_flags", raising)
        log.put(RiskFlagged(run_id="r", flag_id="odd", flag="odd"))
    assert view(log).state is RunState.QUARANTINED


@pytest.fixture
def aside(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Put aside with two compensations out and one to come."""
    log = Log()
    until_paid(log)
    log.began("ship")
    failed(log, "ship")
    put_aside(monkeypatch, log)
    return log


def test_it_has_a_deadline_though_a_saga_has_none(aside: Log) -> None:
    assert view(aside).expires_ms == aside.now_ms + WAIT_MS
    assert_restores(aside)
    aside.now_ms += WAIT_MS
    aside.tick()
    assert (view(aside).state, view(aside).reason) == (RunState.FAILED, "compensation_failed")
    assert "not undone yet: reserve, pay, pack" in view(aside).detail


def test_a_cancel_ends_it_with_what_is_left(aside: Log) -> None:
    aside.put(RunCancelled(run_id="r", request_id="c"))
    assert view(aside).state is RunState.FAILED
    assert "not undone yet: reserve, pay, pack" in view(aside).detail


def test_one_that_was_put_aside_on_its_way_forward_does_not_go_back_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log()
    log.start(order())
    did(log, "reserve", "reservation")
    put_aside(monkeypatch, log)
    assert given(log.put(RunCancelled(run_id="r", request_id="c"))) == []
    assert view(log).state is RunState.CANCELLED
    assert "not undone yet: reserve" in view(log).detail
