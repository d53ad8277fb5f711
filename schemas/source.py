"""Python source under construction: lines, indentation, fresh names, objects referred to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Generated code and its namespace. Only names from our own schema files enter the text."""

    def __init__(self, namespace: dict[str, object]) -> None:
        self.namespace = namespace
        self._lines: list[str] = []
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        """Append a line at the current depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append `head:` and indent what follows."""
        self.line(f"{head}:")
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """A name not used before."""
        self._names += 1
        return f"{prefix}{self._names}"

    def bind(self, prefix: str, value: object) -> str:
        """A fresh name that stands for `value` in the generated code."""
        name = self.name(prefix)
        self.namespace[name] = value
        return name

    @property
    def text(self) -> str:
        """The source so far."""
        return "\n".join(self._lines) + "\n"

    def build(self, function: str, filename: str) -> Callable[..., Any]:
        """Compile, and return the function of that name."""
        code = compile(self.text, filename, "exec")
        exec(code, self.namespace)  # noqa: S102 - our own schema files compiled, never input
        built: Callable[..., Any] = self.namespace[function]  # type: ignore[assignment]
        return built
