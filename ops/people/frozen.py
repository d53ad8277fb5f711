"""Frozen lists for bulk decisions: one JSON line for each package, with the digest it had then."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from dalsegno.ops.people.deciding import Target
from dalsegno.schemas.outputs import Escalation


class FrozenListError(Exception):
    """The file is no frozen list. The message names file and line."""


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    escalation_id: str
    run_id: str
    step: str
    partition: int
    package_digest: str
    cause: str = ""


def freeze(packages: Iterable[Escalation], path: Path) -> int:
    """Writes the list; returns how many packages it has. Raises FrozenListError."""
    lines = [
        msgspec.json.encode(
            _Line(
                each.escalation_id,
                each.run_id,
                each.step,
                each.partition,
                each.package_digest.hex(),
                each.cause,
            )
        )
        for each in packages
    ]
    try:
        path.write_bytes(b"".join(line + b"\n" for line in lines))
    except OSError as error:
        raise FrozenListError(f"{path}: {error.strerror}") from error
    return len(lines)


def thaw(path: Path) -> list[Target]:
    """The packages of a list, as they were. Raises FrozenListError."""
    targets = []
    try:
        text = path.read_bytes()
    except OSError as error:
        raise FrozenListError(f"{path}: {error.strerror}") from error
    for number, line in enumerate(text.splitlines(), 1):
        try:
            read = msgspec.json.decode(line, type=_Line)
            digest = bytes.fromhex(read.package_digest)
        except (msgspec.MsgspecError, ValueError) as error:
            raise FrozenListError(f"{path}, line {number}: {error}") from error
        targets.append(Target(read.escalation_id, read.run_id, read.step, read.partition, digest))
    return targets
