"""Policies as files that people write: TOML or JSON, fingerprints in hexadecimal."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from dalsegno.schemas.control import DecisionKey, Dependency, Policy, RegistryId, Webhook
from dalsegno.schemas.plan import RetryPolicy

_TABLES: dict[str, type[msgspec.Struct]] = {
    "webhooks": Webhook,
    "decision_keys": DecisionKey,
    "dependencies": Dependency,
}


class PolicyFileError(Exception):
    """The file is not a policy. The message names file and field."""


def load_policy(path: Path, current: Policy) -> Policy:
    """The policy that a file describes; fields that it leaves out stay as in `current`.

    Raises PolicyFileError.
    """
    try:
        text = path.read_text()
        parsed = tomllib.loads(text) if path.suffix == ".toml" else msgspec.json.decode(text)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise PolicyFileError(f"{path}: {said}") from error
    if not isinstance(parsed, dict):
        raise PolicyFileError(f"{path}: expected a table of settings")
    _refuse_unknown(path, "", parsed, Policy)
    given = dict(parsed)
    retry = given.get("retry_default")
    if isinstance(retry, dict):
        _refuse_unknown(path, "retry_default.", retry, RetryPolicy)
        given["retry_default"] = {**msgspec.to_builtins(current.retry_default), **retry}
    for name, cls in _TABLES.items():
        for table in given.get(name, ()):
            if isinstance(table, dict):
                _refuse_unknown(path, f"{name}.", table, cls)
    try:
        if "schemas" in given:
            given["schemas"] = tuple(bytes.fromhex(each) for each in given["schemas"])
        if "registry_ids" in given:
            given["registry_ids"] = _ids_of(given["registry_ids"])
        if "decision_keys" in given:
            given["decision_keys"] = tuple(
                {**each, "public_key": bytes.fromhex(each["public_key"])}
                for each in given["decision_keys"]
            )
        merged = {name: getattr(current, name) for name in Policy.__struct_fields__} | given
        return msgspec.convert(merged, Policy, builtin_types=(bytes,), from_attributes=True)
    except (
        msgspec.ValidationError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise PolicyFileError(f"{path}: {error}") from error


def describe(policy: Policy) -> dict[str, object]:
    """The policy as plain values, as a file would give it."""
    fields = {name: getattr(policy, name) for name in Policy.__struct_fields__}
    fields["schemas"] = [each.hex() for each in policy.schemas]
    fields["registry_ids"] = {str(each.id): each.fingerprint.hex() for each in policy.registry_ids}
    fields["decision_keys"] = [
        {**msgspec.to_builtins(each), "public_key": each.public_key.hex()}
        for each in policy.decision_keys
    ]
    fields["webhooks"] = msgspec.to_builtins(policy.webhooks)
    fields["retry_default"] = msgspec.to_builtins(policy.retry_default)
    return fields


def _ids_of(table: Mapping[str, str]) -> tuple[RegistryId, ...]:
    """A file has them as a table: id = "fingerprint"."""
    pairs = ((int(number), bytes.fromhex(text)) for number, text in table.items())
    return tuple(RegistryId(id=number, fingerprint=each) for number, each in sorted(pairs))


def changes(before: Policy, after: Policy) -> list[tuple[str, object, object]]:
    """(setting, before, after) of all that differs."""
    old, new = describe(before), describe(after)
    return [(name, old[name], new[name]) for name in old if old[name] != new[name]]


def _refuse_unknown(
    path: Path, where: str, given: Mapping[str, object], cls: type[msgspec.Struct]
) -> None:
    unknown = sorted(set(given) - set(cls.__struct_fields__))
    if unknown:
        raise PolicyFileError(
            f"{path}: {where}{unknown[0]} is no setting of a policy: see `dalsegno policy show`"
        )
