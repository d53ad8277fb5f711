"""The demo's line of an outage, from a page of metrics."""

from __future__ import annotations

from examples.risk_control.outage import Sample, draw, sample

PAGE = """\
# HELP dalsegno_fault_point_window Attempts
dalsegno_fault_point_phase{fault_point="bureau",phase="open"} 1.0
dalsegno_fault_point_window{fault_point="bureau"} 1.0
dalsegno_fault_point_phase{fault_point="data-validation",phase="ramping"} 1.0
dalsegno_fault_point_window{fault_point="data-validation"} 8.0
dalsegno_fault_point_waiting{fault_point="data-validation"} 21.0
"""


def test_a_fault_point_is_read_and_its_neighbour_is_not() -> None:
    assert sample(PAGE, "data-validation") == Sample("ramping", 8, 21)
    assert sample(PAGE, "bureau") == Sample("open", 1, 0)
    assert sample(PAGE, "scoring") == Sample()


def test_each_phase_has_its_mark_and_a_window_grows_by_doubling() -> None:
    phases = [Sample(), Sample("open"), Sample("half_open", 1), Sample("ramping", 1)]
    line = draw([*phases, Sample("ramping", 2), Sample("ramping", 300), Sample()])
    assert line.plain == "·█?▁▂█·"
