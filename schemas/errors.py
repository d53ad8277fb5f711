"""Errors of the wire contract: what is wrong, where, and whose fault it is.

`EncodeError`, `ValueRefusedError`: the caller's own record or value; fix it, a retry cannot help.
`DecodeError`: the sender's bytes; dead-letter the record, a retry cannot help.
`KeyMissing`, `SchemaMissing`: this process lacks what the policy has in force; stop, never refuse
the event; configure or upgrade the process and go on from the same offset.
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """Why bytes were not accepted; the `reason` of their dead letter."""

    BAD_FRAME = "bad_frame"
    UNKNOWN_SCHEMA = "unknown_schema"
    BAD_BODY = "bad_body"
    TRAILING_BYTES = "trailing_bytes"
    TOO_LARGE = "too_large"
    NOT_AN_EVENT = "not_an_event"
    WRONG_PARTITION = "wrong_partition"
    WRONG_KEY = "wrong_key"
    NO_MAC = "no_mac"
    UNKNOWN_MAC_KEY = "unknown_mac_key"
    BAD_MAC = "bad_mac"
    NO_SIGNATURE = "no_signature"
    UNKNOWN_DECISION_KEY = "unknown_decision_key"
    BAD_SIGNATURE = "bad_signature"
    WRONG_SIGNER = "wrong_signer"


class ContractError(Exception):
    """Whatever contradicts the wire contract."""


class EncodeError(ContractError, ValueError):
    """A record that cannot be encoded. `path` leads to the value from the record
    (`plan.steps[2].name`).
    """

    def __init__(self, kind: str, path: str, detail: str) -> None:
        super().__init__(f"{kind}.{path}: {detail}" if path else f"{kind}: {detail}")
        self.kind = kind
        self.path = path
        self.detail = detail


class DecodeError(ContractError, ValueError):
    """Bytes that are not one record of a known schema, whole and nothing else.

    `kind` is empty when the bytes do not say; `path` leads to the value that could not be read and
    `offset` to its first byte, counted from the start of the Kafka value.
    """

    def __init__(
        self, fault: Fault, detail: str, *, kind: str = "", path: str = "", offset: int = 0
    ) -> None:
        where = f"{kind}.{path}" if path else kind
        super().__init__(f"{fault}: {where + ': ' if where else ''}{detail} (byte {offset})")
        self.fault = fault
        self.detail = detail
        self.kind = kind
        self.path = path
        self.offset = offset


class ValueRefusedError(ContractError, ValueError):
    """A context value, or its bytes, outside the MessagePack profile. `path` leads to it
    (`a.b[3]`).
    """

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path or 'value'}: {detail}")
        self.path = path
        self.detail = detail


class SchemaFileError(ContractError):
    """A schema file of ours is broken: the build is wrong, not a record."""


class KeyMissing(ContractError):  # noqa: N818 - names a condition that stops the partition
    """The policy has a MAC key in force that this process does not know: add it to the settings."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"MAC key {key_id!r} is in force but not in this process's settings: add it and restart"
        )
        self.key_id = key_id


class SchemaMissing(ContractError):  # noqa: N818 - names a condition that stops the partition
    """The policy has a schema in force that this process does not know: upgrade the process."""

    def __init__(self, fingerprint: bytes) -> None:
        super().__init__(
            f"schema {fingerprint.hex()} is in force but unknown to this code: "
            "upgrade it and restart"
        )
        self.fingerprint = fingerprint
