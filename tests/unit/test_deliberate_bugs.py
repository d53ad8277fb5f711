"""A deliberate bug that no test looks for proves nothing: each one is in a list of such a test."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.source_tree import ROOT, python_files

PATCHES = {"pytest.MonkeyPatch", "Patch"}


def files_of_bugs() -> list[Path]:
    """The files that hold nothing else, and the one that has them beside its test."""
    named = ("mutants", "have_teeth")
    return [path for path in python_files("tests") if any(name in path.stem for name in named)]


def bugs(tree: ast.Module) -> Iterator[str]:
    """Functions that break the product: those without an argument, and those that take patches."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("test_"):
            continue
        given = [each.arg for each in node.args.args]
        types = {ast.unparse(each.annotation) for each in node.args.args if each.annotation}
        patches = given in (["patch"], ["patches"]) or (len(given) == 1 and bool(types & PATCHES))
        if patches or (not given and not node.name.startswith("_")):
            yield node.name


def named_in(tree: ast.Module) -> dict[str, set[str]]:
    """Of each assignment of the file, what it names."""
    found: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
            found.update((ast.unparse(target), names) for target in targets)
    return found


def names_in_tests() -> set[str]:
    """What the parameters of tests name."""
    return {
        each.id
        for path in python_files("tests")
        if path.stem.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for decorator in node.decorator_list
        for each in ast.walk(decorator)
        if isinstance(each, ast.Name)
    } | {
        name
        for path in python_files("tests")
        if path.stem.startswith("test_")
        for assigned, names in named_in(ast.parse(path.read_text())).items()
        if assigned == "MUTANTS"
        for name in names
    }


def test_each_deliberate_bug_is_in_a_list_that_a_test_runs() -> None:
    trees = {path: ast.parse(path.read_text()) for path in files_of_bugs()}
    lists: dict[str, set[str]] = {}
    for tree in trees.values():
        for name, names in named_in(tree).items():
            lists[name] = lists.get(name, set()) | names
    run = names_in_tests()
    while more := {each for name in run for each in lists.get(name, ())} - run:
        run |= more
    found = {path: [*bugs(tree)] for path, tree in trees.items()}
    assert len(trees) >= 15
    assert [path for path, names in found.items() if not names and path.stem != "mutants"] == []
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, names in found.items()
        for name in names
        if name not in run
    ]
    assert unused == []
