"""The tables of states are total, and the fold goes by them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.core.log import Log, chain

from dalsegno.schemas.outputs import Outcome, RunState, StepState
from dalsegno.streams.core.diagrams import states_page
from dalsegno.streams.core.draft import Draft, IllegalMove
from dalsegno.streams.core.run_table import FINAL_RUNS, RUN_MOVES, RUN_TABLE, RunInput
from dalsegno.streams.core.runstate import GROUP
from dalsegno.streams.core.step_table import FINAL_STEPS, MANAGED, OBSERVED, StepInput

PAGE = Path(__file__).parents[3] / "docs" / "states.md"


@pytest.mark.parametrize("table", [MANAGED, OBSERVED], ids=["managed", "observed"])
def test_every_state_of_a_step_has_an_outcome_for_every_input(table) -> None:  # type: ignore[no-untyped-def]
    assert set(table) == set(StepState)
    for state, rules in table.items():
        assert set(rules) == set(StepInput), state
        for what, rule in rules.items():
            assert rule.outcome in Outcome
            assert rule.outcome is Outcome.APPLIED or (rule.reason and not rule.to), (state, what)


def test_every_state_of_a_run_has_an_outcome_for_every_input() -> None:
    assert set(RUN_TABLE) == set(RunState)
    for state, rules in RUN_TABLE.items():
        assert set(rules) == set(RunInput), state
        for what, rule in rules.items():
            assert rule.outcome is Outcome.APPLIED or (rule.reason and not rule.to), (state, what)


def test_final_states_are_left_only_to_be_taken_back_or_to_supply_a_fact() -> None:
    assert all(not RUN_MOVES[state] for state in FINAL_RUNS)
    for state in FINAL_STEPS:
        for table in (MANAGED, OBSERVED):
            rules = {what: rule for what, rule in table[state].items() if rule.to}
            assert set(rules) <= {StepInput.UNDO, StepInput.INFORMED}
            assert StepInput.INFORMED not in rules or state is StepState.COMPLETED


def test_every_state_of_a_step_is_counted_in_a_group() -> None:
    assert set(GROUP) == set(StepState)


def test_a_move_that_no_rule_allows_is_an_error_and_changes_nothing() -> None:
    log = Log()
    log.start(chain(1))
    partition = log.partition
    run = partition._runs.get("r")
    before = partition.parts()
    draft = Draft(run, partition._now)  # type: ignore[arg-type]
    with pytest.raises(IllegalMove):
        draft.move(0, draft.row(0), StepState.COMPLETED)
    assert partition.parts() == before


def test_the_page_of_states_is_what_the_tables_say() -> None:
    assert PAGE.read_text() == states_page(), (
        "run: python -c 'from dalsegno.streams.core.diagrams import states_page; "
        'print(states_page(), end="")\' > docs/states.md'
    )
