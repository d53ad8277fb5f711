"""Keys that people sign decisions with: a file for its owner only, and the public half."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dalsegno.schemas.control import DecisionKey
from dalsegno.schemas.signing import key_id_fault, signature_header, signed_message


class KeyFileError(Exception):
    """The file is no decision key, or others may read it. The message says what to do."""


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    key_id: str
    holder: str
    private_key: str


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A person's key. `holder`: the name that decisions carry."""

    key_id: str
    holder: str
    private: Ed25519PrivateKey

    @classmethod
    def new(cls, key_id: str, holder: str) -> "SigningKey":
        """A fresh key. Raises KeyFileError for an id that cannot be used."""
        if fault := key_id_fault(key_id):
            raise KeyFileError(f"key id {key_id!r}: {fault}")
        return cls(key_id, holder, Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> "SigningKey":
        """Raises KeyFileError."""
        try:
            mode = path.stat().st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise KeyFileError(f"{path}: others may read it; run `chmod 600 {path}`")
            stored = msgspec.json.decode(path.read_bytes(), type=_Stored)
            private = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(stored.private_key))
        except FileNotFoundError as error:
            raise KeyFileError(f"{path}: no such key; make one with `dalsegno keys new`") from error
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            raise KeyFileError(f"{path}: {error}") from error
        return cls(stored.key_id, stored.holder, private)

    def write(self, path: Path) -> None:
        """Writes a new file that only this user may read. Raises KeyFileError if there is one."""
        stored = _Stored(self.key_id, self.holder, self.private.private_bytes_raw().hex())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise KeyFileError(f"{path} is there already: name another file") from error
        except OSError as error:
            raise KeyFileError(f"{path}: {error}") from error
        with os.fdopen(fresh, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(stored)) + b"\n")

    @property
    def public(self) -> DecisionKey:
        """What the policy lists."""
        raw = self.private.public_key().public_bytes_raw()
        return DecisionKey(key_id=self.key_id, public_key=raw, holder=self.holder)

    def sign(self, topic: str, value: bytes) -> bytes:
        """The signature header of a decision."""
        return signature_header(self.key_id, self.private.sign(signed_message(topic, value)))
