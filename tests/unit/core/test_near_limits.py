"""Contexts near a limit are found while they still fit."""

import sys

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.log import Log, pack, plan_of, step, view

from dalsegno.schemas.control import Policy, PolicySet
from dalsegno.schemas.events import InformationSupplied
from dalsegno.streams.core.near_limits import NearLimit
from dalsegno.streams.engine.metrics import EngineMetrics
from dalsegno.streams.engine.metrics_catalogue import FIELDS_MAX

PLAN = plan_of(
    step("s0", reads=("a", "b"), may_write=("a", "b")),
    step("s1", reads=("c",), needs=("s0",)),
)
LIMITS = {"inline_bytes_max": 10_000, "context_bytes_max": 30_000, "dispatch_bytes_max": 16_000}


def log_of(sizes: dict[str, int]) -> Log:
    """A run whose fields have so many packed bytes."""
    log = Log()
    log.policy(**LIMITS)
    log.start(PLAN, context={name: b"x" * (size - 3) for name, size in sizes.items()})
    return log


def near(log: Log) -> list[tuple[str, str]]:
    return [(each.limit, each.field) for each in log.partition.near_limits("r")]


def test_a_small_context_is_near_nothing() -> None:
    assert near(log_of({"a": 7_900, "b": 3})) == []
    assert Log().partition.near_limits("nobody") == ()


def test_a_value_near_the_inline_limit_is_named() -> None:
    log = log_of({"a": 8_000, "b": 3_000})
    assert log.partition.near_limits("r") == (NearLimit("flow", "inline_bytes_max", "a"),)


def test_inputs_of_a_step_to_come_are_measured_together() -> None:
    assert near(log_of({"a": 7_000, "b": 6_000})) == [("dispatch_bytes_max", "a")]


def test_a_whole_context_is_named_by_its_largest_field() -> None:
    found = near(log_of({"a": 6_000, "b": 6_000, "c": 6_400, "d": 5_700}))
    assert found == [("context_bytes_max", "c")]


def lines_run(steps: int) -> int:
    """How many lines of Python run while a run of so many steps is looked at."""
    log = Log()
    log.policy(**LIMITS)
    plan = plan_of(*[step(f"s{i}", reads=("a", "b")) for i in range(steps)])
    log.start(plan, context={"a": b"x" * 8_997, "b": b"x" * 1_997})
    count = 0

    def trace(_frame: object, event: str, _arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        found = log.partition.near_limits("r")
    finally:
        sys.settrace(before)
    assert found == (NearLimit("flow", "inline_bytes_max", "a"),)
    return count


def test_a_context_that_no_step_can_read_too_much_of_costs_the_same_in_long_plans() -> None:
    assert lines_run(400) == lines_run(4)


def test_what_a_completed_step_has_read_no_longer_counts() -> None:
    log = log_of({"a": 7_000, "b": 6_000})
    log.began("s0")
    log.done("s0", ops=[])
    assert near(log) == []


def test_a_value_that_grows_in_place_is_measured_as_a_whole() -> None:
    log = log_of({"a": 3_000, "b": 3_000})
    event = InformationSupplied(
        run_id="r", information_id="t", ops=pack([["set", ["t"], "x" * 5_000]]), origin="test"
    )
    log.put(event)
    assert near(log) == []
    more = InformationSupplied(
        run_id="r", information_id="u", ops=pack([["cat", ["t"], "y" * 4_000]]), origin="test"
    )
    log.put(more)
    assert near(log) == [("inline_bytes_max", "t")]


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(3, 9_000), min_size=3))
def test_what_is_refused_for_its_size_was_near_before(sizes: dict[str, int]) -> None:
    """Whatever a next write of a fifth of a limit would break, is said before."""
    log = log_of({"a": 3, "b": 3, **sizes})
    if view(log).kind != "run":
        return
    for name, size in sizes.items():
        grown = InformationSupplied(
            run_id="r", information_id=f"g{name}", origin="test",
            ops=pack([["set", [name], b"x" * (size + 1_900)]]),
        )  # fmt: skip
        was_near = {limit for limit, _ in near(log)}
        before = view(log).context
        log.put(grown)
        if view(log).context == before:
            assert was_near & {"inline_bytes_max", "context_bytes_max"}


def test_the_metric_names_limit_flow_and_field_and_is_bounded() -> None:
    metrics = EngineMetrics()
    metrics.signals.near(log_of({"a": 8_000, "b": 3}).partition.near_limits("r"))
    metrics.signals.near(
        NearLimit("flow", "inline_bytes_max", f"f{i}") for i in range(2 * FIELDS_MAX)
    )
    text = metrics.text().decode()
    name = "dalsegno_context_near_limit_total"
    assert f'{name}{{field="a",flow="flow",limit="inline_bytes_max"}} 1.0' in text
    assert text.count(f"{name}{{") == FIELDS_MAX + 1
    assert f'{name}{{field="other",flow="flow",limit="inline_bytes_max"}} 101.0' in text


def test_a_policy_that_lowers_a_limit_is_the_measure_at_the_next_write() -> None:
    log = Log()
    log.start(PLAN, context={"a": b"x" * 500, "b": b""})
    assert near(log) == []
    log.put(PolicySet(partition=0, number=1, policy=Policy(inline_bytes_max=600)))
    assert near(log) == [("inline_bytes_max", "a")]
