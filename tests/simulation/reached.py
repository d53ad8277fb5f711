"""Which checks of the worlds were asked for real.

A check is an `if` that breaks a promise. Its last condition is what must not be; those before say
what it is about. One whose last condition is never looked at has proved nothing.
"""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any
from unittest.mock import patch

FOLDER = Path(__file__).parent
MARK = "_reached"


def modules() -> list[ModuleType]:
    """Those that hold checks."""
    names = (path.stem for path in sorted(FOLDER.glob("*.py")) if path.name[:5] != "test_")
    found = (importlib.import_module(f"tests.simulation.{name}") for name in names)
    return [module for module in found if _Marking(module).places]


@contextmanager
def watched() -> Iterator[Counter[str]]:
    """How often each check is asked for real while this is entered; 0 for one that never is."""
    seen: Counter[str] = Counter()

    def reached(place: str) -> bool:
        seen[place] += 1
        return False

    with ExitStack() as stack:
        for module in modules():
            marking = _Marking(module)
            seen.update(dict.fromkeys(marking.places, 0))
            stack.enter_context(patch.dict(vars(module), {MARK: reached}))
            codes = {code.co_qualname: code for code in _codes(marking.code)}
            for function in _functions(module):
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = codes[function.__qualname__]
        yield seen


class _Marking(ast.NodeTransformer):
    """`code`: the module with its checks marked; `places`: these."""

    def __init__(self, module: ModuleType) -> None:
        path = Path(module.__file__ or "")
        self.places: list[str] = []
        self._file = path.name
        tree = ast.fix_missing_locations(self.visit(ast.parse(path.read_text())))
        self.code = compile(tree, str(path), "exec", dont_inherit=True)

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if _breaks(node):
            node.test = self._marked(node.lineno, node.test)
        return node

    def _marked(self, line: int, condition: ast.expr) -> ast.expr:
        place = f"{self._file}:{line}: {ast.unparse(condition)}"
        self.places.append(place)
        call = ast.Call(ast.Name(MARK, ast.Load()), [ast.Constant(place)], [])
        if isinstance(condition, ast.BoolOp) and isinstance(condition.op, ast.And):
            last = ast.BoolOp(ast.Or(), [call, condition.values[-1]])
            return ast.BoolOp(ast.And(), [*condition.values[:-1], last])
        return ast.BoolOp(ast.Or(), [call, condition])


def _breaks(node: ast.If) -> bool:
    """Whether it does nothing but break a promise."""
    said = [ast.unparse(each) for each in node.body if isinstance(each, ast.Raise | ast.Expr)]
    return any("BrokenPromiseError(" in each or ".fail(" in each for each in said)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _functions(owner: Any) -> Iterator[FunctionType]:
    """Functions of a module, and of its classes."""
    module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for found in [*vars(owner).values()]:
        each = found.fget if isinstance(found, property) else found
        each = getattr(each, "__func__", getattr(each, "__wrapped__", each))
        if isinstance(each, type) and each.__module__ == module and isinstance(owner, ModuleType):
            yield from _functions(each)
        elif isinstance(each, FunctionType) and each.__code__.co_filename == _file(module):
            yield each


def _file(module: str) -> str:
    return str(importlib.import_module(module).__file__)
