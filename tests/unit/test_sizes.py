"""Modules and functions stay small enough to read at once."""

import statistics

from tests.unit.source_tree import PRODUCT, ROOT, functions, python_files

MODULE_LINES_MAX = 400
MODULE_LINES_MEDIAN_MAX = 120
FUNCTION_LINES_MAX = 70
FUNCTION_LINES_P95_MAX = 40
BROAD_EXCEPTS_PER_1000_LINES_MAX = 2.0


def test_no_module_is_too_long() -> None:
    lengths = {
        str(path.relative_to(ROOT)): path.read_text().count("\n")
        for path in python_files(*PRODUCT, "benchmarks", "examples", "tests")
    }
    assert {p: n for p, n in lengths.items() if n > MODULE_LINES_MAX} == {}


def test_most_modules_are_short() -> None:
    lengths = [path.read_text().count("\n") for path in python_files(*PRODUCT)]
    assert statistics.median(lengths) <= MODULE_LINES_MEDIAN_MAX


def test_no_function_is_too_long() -> None:
    long = {
        f"{path.relative_to(ROOT)}:{name}": lines
        for path in python_files(*PRODUCT, "benchmarks", "examples")
        for name, lines in functions(path)
        if lines > FUNCTION_LINES_MAX
    }
    assert long == {}


def test_most_functions_are_short() -> None:
    lengths = sorted(n for path in python_files(*PRODUCT) for _, n in functions(path))
    assert lengths[int(len(lengths) * 0.95)] <= FUNCTION_LINES_P95_MAX


def test_broad_excepts_are_rare() -> None:
    text = [line for path in python_files(*PRODUCT) for line in path.read_text().splitlines()]
    broad = sum("except Exception" in line or "except BaseException" in line for line in text)
    assert broad * 1000 / len(text) < BROAD_EXCEPTS_PER_1000_LINES_MAX
