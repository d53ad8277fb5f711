"""Random documents and operations, and a plain model of what operations do."""

from __future__ import annotations

import copy
import random
from datetime import UTC, datetime

import msgspec

pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode

SCALARS = (
    None, True, False, 0, 1, -1, 127, 128, 255, 256, 65535, 65536, -32, -33, 2**31, 2**63 - 1,
    -(2**63), 0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), "", "a", "1", "é", "日本" * 20,
    "x" * 31, "x" * 32, "x" * 255, "x" * 256, b"", b"\x00\xff", b"y" * 40,
    datetime(1900, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, 12, 30, 0, 5, tzinfo=UTC),
)  # fmt: skip
KEYS = ("a", "b", "c", "d", "e/f", "g~h", "", "é", "0", "long" * 10)
FIELDS = ("one", "two", "three", "four", "five/six", "sieben ü")


def value(rng: random.Random, depth: int = 3):
    """A random value; small, with every type and header size among them."""
    draw = rng.random()
    if depth <= 0 or draw < 0.4:
        return rng.choice(SCALARS)
    if draw < 0.7:
        count = rng.choice((0, 1, 2, 3, 5, 15, 16, 17))
        return [value(rng, depth - 1 - count // 8) for _ in range(count)]
    keys = rng.sample(KEYS, rng.randint(0, 6))
    return {key: value(rng, depth - 1) for key in keys}


def document(rng: random.Random, depth: int = 3) -> dict:
    """A random context."""
    return {name: value(rng, depth) for name in rng.sample(FIELDS, rng.randint(0, len(FIELDS)))}


def mutated(rng: random.Random, old):
    """A value that shares much with `old`: what a step would make of it."""
    if isinstance(old, dict) and rng.random() < 0.9:
        new = {}
        for key, item in old.items():
            draw = rng.random()
            if draw < 0.15:
                continue
            new[key] = mutated(rng, item) if draw < 0.4 else item
        if rng.random() < 0.3:
            new[rng.choice(KEYS)] = value(rng, 1)
        if rng.random() < 0.05:
            new = dict(reversed(new.items()))
        return new
    if isinstance(old, list) and rng.random() < 0.9:
        new = [mutated(rng, item) if rng.random() < 0.2 else item for item in old]
        for _ in range(rng.randint(0, 3)):
            at = rng.randint(0, len(new))
            new[at : at + rng.randint(0, 2)] = [value(rng, 1) for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.1:
            rng.shuffle(new)
        return new
    if isinstance(old, str) and rng.random() < 0.6:
        return old + rng.choice(("", "more", "é" * 30))
    return value(rng, 2)


class MisfitError(Exception):
    """The model's word for an operation that does not fit."""


def _step(at, key):
    if isinstance(at, dict) and isinstance(key, str) and key in at:
        return at[key]
    if isinstance(at, list) and isinstance(key, int) and 0 <= key < len(at):
        return at[key]
    raise MisfitError


def model(context: dict, ops: list) -> dict:
    """The context after well-formed operations; the one given stays. Raises `MisfitError`."""
    root = copy.deepcopy(context)
    for op in ops:
        kind, path = op[0], op[1]
        if not path:
            if kind != "set" or not isinstance(op[2], dict):
                raise MisfitError
            root = copy.deepcopy(op[2])
            continue
        if not isinstance(path[0], str):
            raise MisfitError
        parent = root
        for key in path[:-1]:
            parent = _step(parent, key)
        key = path[-1]
        if kind == "set":
            if isinstance(parent, dict) and isinstance(key, str):
                parent[key] = copy.deepcopy(op[2])
            else:
                _step(parent, key)
                parent[key] = copy.deepcopy(op[2])
        elif kind == "del":
            if not isinstance(parent, dict):
                raise MisfitError
            _step(parent, key)
            del parent[key]
        else:
            target = _step(parent, key)
            if kind == "cat":
                if not isinstance(target, str):
                    raise MisfitError
                parent[key] = target + op[2]
            elif not isinstance(target, list):
                raise MisfitError
            elif kind == "app":
                target.extend(copy.deepcopy(op[2]))
            else:
                if op[2] + op[3] > len(target):
                    raise MisfitError
                target[op[2] : op[2] + op[3]] = copy.deepcopy(op[4])
    return root


def packed_fields(context: dict) -> bytes:
    """What `Context.pack()` gives for this context: fields by name."""
    return pack(dict(sorted(context.items())))


def _random_path(rng: random.Random, at, path: list) -> list:
    while rng.random() < 0.6:
        if isinstance(at, dict) and at:
            key = rng.choice(list(at))
        elif isinstance(at, list) and at:
            key = rng.randrange(len(at))
        else:
            break
        path, at = [*path, key], at[key]
    return path


def operation(rng: random.Random, context: dict) -> list:
    """A well-formed operation; most of them fit the context."""
    name = rng.choice(list(context)) if context and rng.random() < 0.9 else rng.choice(FIELDS)
    path = _random_path(rng, context.get(name), [name])
    target: object = context
    for key in path:
        target = target[key] if isinstance(target, list) else target.get(key)  # type: ignore[union-attr]
    if isinstance(target, list) and rng.random() < 0.8:
        items = [value(rng, 1) for _ in range(rng.choice((0, 1, 2, 16)))]
        if rng.random() < 0.5:
            return ["app", path, items]
        at = rng.randint(0, len(target))
        return ["spl", path, at, rng.randint(0, len(target) - at + (rng.random() < 0.05)), items]
    if isinstance(target, str) and rng.random() < 0.6:
        return ["cat", path, rng.choice(("", "tail", "ü" * 40))]
    if isinstance(target, dict) and rng.random() < 0.6:
        path = [*path, rng.choice(KEYS)]
    if rng.random() < 0.2:
        return ["del", path]
    if rng.random() < 0.01:
        return ["set", [], document(rng, 2)]
    return ["set", path, value(rng, 2)]
