"""A deliberate bug that no test looks for proves nothing: each one is in a list of such a test."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.source_tree import ROOT, python_files

Name = tuple[str, str]
"""A module, and what it has by that name."""
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


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


class Names:
    """Whose the names of a file are: imported ones another's, the rest its own."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self._module, self._tree = module, tree
        self._imported = {
            each.asname or each.name: (node.module, each.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module is not None
            for each in node.names
        }

    def within(self, node: ast.AST) -> set[Name]:
        found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        return {self._imported.get(name, (self._module, name)) for name in found}

    def assigned(self) -> dict[Name, set[Name]]:
        """Of each assignment of the file, what it names."""
        found: dict[Name, set[Name]] = {}
        for node in self._tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = self.within(node.value)
                found.update(((self._module, ast.unparse(each)), names) for each in targets)
        return found

    def run(self) -> set[Name]:
        """What the parameters of its tests name, and its list."""
        found: set[Name] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.update(*map(self.within, node.decorator_list))
        return found | self.assigned().get((self._module, "MUTANTS"), set())


def names_in_tests() -> set[Name]:
    """What tests run."""
    found: set[Name] = set()
    for path in python_files("tests"):
        if path.stem.startswith("test_"):
            found |= Names(module_of(path), ast.parse(path.read_text())).run()
    return found


def test_each_deliberate_bug_is_in_a_list_that_a_test_runs() -> None:
    trees = {path: ast.parse(path.read_text()) for path in files_of_bugs()}
    lists: dict[Name, set[Name]] = {}
    for path, tree in trees.items():
        lists |= Names(module_of(path), tree).assigned()
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
        if (module_of(path), name) not in run
    ]
    assert unused == []


def test_a_bug_is_not_run_because_another_file_has_one_of_its_name() -> None:
    tree = ast.parse(
        "from tests.one import bug\nfrom tests.two import other as third\n"
        "MUTANTS = [bug, third, own]"
    )
    run = Names("tests.test_three", tree).run()
    assert run == {("tests.one", "bug"), ("tests.two", "other"), ("tests.test_three", "own")}
