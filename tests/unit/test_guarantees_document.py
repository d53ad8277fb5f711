"""Every test that the page of guarantees names exists."""

import ast
import re
from pathlib import Path

import pytest
from tests.unit.source_tree import ROOT

PAGE = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)))
FILES = sorted({file for file, _ in NAMED})


def names_of(path: Path) -> set[str]:
    """Functions, classes and assigned names at the top of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return found


@pytest.mark.parametrize("file", FILES)
def test_the_tests_that_it_names_exist(file: str) -> None:
    path = ROOT / "tests" / file
    assert path.is_file(), f"{file}: no such file"
    named = {name for at, name in NAMED if at == file}
    assert named - names_of(path) == set()
    assert all(name.lower().startswith("test") for name in named)


def test_it_names_every_test_in_one_form() -> None:
    assert len(NAMED) > 100
    assert PAGE.count("::") == len(re.findall(r"`[\w/]+\.py::\w+`", PAGE))


def test_every_promise_has_its_section() -> None:
    assert re.findall(r"^## (P\d+):", PAGE, re.MULTILINE) == [f"P{n}" for n in range(1, 13)]
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:13]:
        promise = section.split(":")[0]
        assert "::" in section or "Not yet" in section, promise
