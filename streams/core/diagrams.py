"""The states as Mermaid diagrams and tables, generated from the tables that the fold goes by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dalsegno.schemas.outputs import Outcome, RunState, StepState
from dalsegno.streams.core.run_table import FINAL_RUNS, RUN_TABLE
from dalsegno.streams.core.step_table import FINAL_STEPS, MANAGED, OBSERVED, Table

_HEAD: Final = """# States of runs and steps

Generated from `streams/core/run_table.py` and `streams/core/step_table.py`; a test compares.
The diagrams show what changes a state; the tables say what becomes of every other input.
"""
_OBSERVED: Final = """## Steps that services run by themselves

Once the engine has given such a step to a queue, it goes by the table before this one.
"""

_Edges = dict[tuple[str, str], list[str]]


def states_page() -> str:
    """The text of `docs/states.md`."""
    final_steps = [state for state in StepState if state in FINAL_STEPS]
    final_runs = [state for state in RunState if state in FINAL_RUNS]
    return "\n".join(
        (
            _HEAD,
            "## Runs\n",
            _diagram(_run_edges(), RunState.RUNNING, final_runs),
            _run_rows(),
            "## Steps that the engine gives to the workers of a queue\n",
            _diagram(_step_edges(MANAGED), StepState.PENDING, final_steps),
            _step_rows(MANAGED),
            _OBSERVED,
            _diagram(_step_edges(OBSERVED), StepState.PENDING, final_steps),
            _step_rows(OBSERVED),
        )
    )


def _diagram(edges: _Edges, first: str, final: Iterable[str]) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    for (before, after), inputs in edges.items():
        lines.append(f"    {before} --> {after}: {', '.join(inputs)}")
    lines += [f"    {state} --> [*]" for state in final]
    return "\n".join((*lines, "```", ""))


def _step_edges(table: Table) -> _Edges:
    edges: _Edges = {}
    for state, rules in table.items():
        for what, rule in rules.items():
            for to in rule.to:
                edges.setdefault((state, to), []).append(what.replace("timer:", "timer "))
    return edges


def _run_edges() -> _Edges:
    edges: _Edges = {}
    for state, rules in RUN_TABLE.items():
        for what, rule in rules.items():
            for to in rule.to:
                if to is not state:
                    edges.setdefault((state, to), []).append(what.replace("timer:", "timer "))
    return edges


def _step_rows(table: Table) -> str:
    rows = [
        (state.value, what.value, _said(rule.outcome, rule.reason, rule.to))
        for state, rules in table.items()
        for what, rule in rules.items()
    ]
    return _grid(rows)


def _run_rows() -> str:
    rows = [
        (
            state.value,
            what.value,
            "waits" if rule.outcome is None else _said(rule.outcome, rule.reason, rule.to),
        )
        for state, rules in RUN_TABLE.items()
        for what, rule in rules.items()
    ]
    return _grid(rows)


def _said(outcome: Outcome, reason: str, to: Iterable[str]) -> str:
    if reason == "stale":
        return "nothing"
    if outcome is not Outcome.APPLIED:
        return f"{outcome.value}: `{reason}`"
    return "applied" + "".join(f", {state}" for state in to)


def _grid(rows: list[tuple[str, str, str]]) -> str:
    """One line per state and outcome, with all inputs that have it."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for state, what, said in rows:
        grouped.setdefault((state, said), []).append(what)
    lines = ["| state | input | outcome |", "|---|---|---|"]
    lines += [
        f"| {state} | {', '.join(inputs)} | {said} |" for (state, said), inputs in grouped.items()
    ]
    return "\n".join((*lines, ""))
