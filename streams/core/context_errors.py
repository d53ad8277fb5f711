"""What can be wrong with a change of the context. Each leaves the context as it was."""

from __future__ import annotations

from collections.abc import Iterable


def pointer(path: Iterable[str | int]) -> str:
    """A path as text (JSON Pointer, RFC 6901): `["a", 0, "b/c"]` is `/a/0/b~1c`, the root ``."""
    text = ""
    for part in path:
        name = part if isinstance(part, str) else str(part)
        if "~" in name or "/" in name:
            name = name.replace("~", "~0").replace("/", "~1")
        text += "/" + name
    return text


class ContextError(Exception):
    """The reporter's fault: the same operations would be refused again. `path` is a JSON
    Pointer."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path or '(root)'}: {detail}")
        self.path = path
        self.detail = detail


class DeltaError(ContextError):
    """An operation is malformed, holds a value that a context cannot hold, or does not fit."""


class WriteRefused(ContextError):  # noqa: N818 - a refusal
    """A step changes a field that it does not declare."""

    def __init__(self, field: str, step: str) -> None:
        super().__init__(
            pointer((field,)), f"step {step!a} does not declare that it writes {field!a}"
        )
        self.field = field
        self.step = step


class ContextTooLarge(ContextError):  # noqa: N818 - a refusal
    """A limit of the policy: `limit` names it, `size` and `allowed` are bytes."""

    def __init__(self, path: str, limit: str, size: int, allowed: int) -> None:
        super().__init__(path, f"{size} bytes, the policy's {limit} is {allowed}")
        self.limit = limit
        self.size = size
        self.allowed = allowed


class MissingFields(ContextError):  # noqa: N818 - a refusal
    """Fields that a step reads and the context lacks."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        super().__init__(pointer(fields[:1]), f"the context has no {', '.join(fields)}")
        self.fields = fields
