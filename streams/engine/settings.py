"""The engine's settings, read once from `DALSEGNO_…` variables.

What decides about runs is not here: that is the policy, in the log.
"""

from __future__ import annotations

import os
import socket
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from dalsegno.schemas.mac import Keyring
from dalsegno.schemas.topics import Topics
from dalsegno.schemas.webhook import secret_of
from dalsegno.streams.engine.archive_settings import ArchiveSettings
from dalsegno.streams.engine.blob_settings import BlobSettings


class KafkaSecurity(BaseSettings):
    """How to talk to the brokers: the same for Faust, our own clients and the admin client."""

    model_config = SettingsConfigDict(env_prefix="DALSEGNO_", frozen=True, extra="ignore")

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    sasl_username: str = ""
    sasl_password: SecretStr = SecretStr("")
    ssl_ca_file: str = ""
    ssl_cert_file: str = ""
    ssl_key_file: str = ""
    ssl_key_password: SecretStr = SecretStr("")
    ssl_check_hostname: bool = True


class EngineSettings(BaseSettings):
    """One engine process. Durations carry their unit in the name."""

    model_config = SettingsConfigDict(
        env_prefix="DALSEGNO_", frozen=True, extra="ignore", hide_input_in_errors=True
    )

    bootstrap_servers: str = "127.0.0.1:9092"
    prefix: str = Field("dalsegno", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    dev: bool = Field(default=False, description="one broker: replication faults are warnings")
    name: str = Field("", description="stable name of this replica: makes it a static member")
    leave: bool = Field(default=False, description="give a static member's place up when stopping")
    mac_keys: Annotated[dict[str, bytes], NoDecode] = Field(
        default_factory=dict, repr=False, description="`id:hex,id:hex`; the first one signs"
    )
    webhook_secrets: Annotated[dict[str, bytes], NoDecode] = Field(
        default_factory=dict, repr=False, description="`id:whsec_base64,…` that sign webhooks"
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    http_host: str = "127.0.0.1"
    http_port: int = Field(8470, ge=0, le=65535, description="0: any free port")
    http_url: str = Field(
        "", description="how other engines reach this one; default from host, port"
    )

    session_timeout_ms: int = Field(6_000, ge=500)
    heartbeat_interval_ms: int = Field(500, ge=50)
    rebalance_timeout_ms: int = Field(6_000, ge=500)
    poll_interval_max_ms: int = Field(60_000, ge=5_000)
    request_timeout_ms: int = Field(3_000, ge=500)
    transaction_timeout_ms: int = Field(5_000, ge=1_000)
    metadata_age_max_ms: int = Field(10_000, ge=500)

    fetch_wait_ms: int = Field(50, ge=1, le=1_000)
    batch_records_max: int = Field(500, ge=1)
    checkpoint_interval_ms: int = Field(250, ge=10)
    checkpoint_events_max: int = Field(20_000, ge=1)
    checkpoint_bytes_max: int = Field(16 << 20, ge=1 << 16, description="of events")
    unacked_outputs_max: int = Field(8_000, ge=1)
    restore_timeout_ms: int = Field(30_000, ge=1_000, description="without any progress")
    restores_at_once: int = Field(2, ge=1)
    offsets_interval_ms: int = Field(5_000, ge=100)
    stop_timeout_ms: int = Field(9_000, ge=1_000)
    data_dir: str = Field(
        "", description="folder for runs that leave memory; empty: all runs stay in memory"
    )
    memory_bytes: int = Field(
        1 << 30, ge=1 << 16, description="what the runs in memory may take, with a data folder"
    )
    memory_bytes_max: int = Field(
        0, ge=0, description="above it no more events are taken; 0: twice `memory_bytes`"
    )
    warm_cache_bytes: int = Field(64 << 20, ge=1 << 20, description="of all local databases")
    warm_buffer_bytes: int = Field(64 << 20, ge=1 << 20, description="of all local databases")
    warm_flush_ms: int = Field(10_000, ge=100, description="how much of it a crash may lose")
    snapshots: bool = Field(
        default=True, description="keep earlier versions of live runs, with a data folder"
    )
    snapshot_links: int = Field(
        64, ge=1, le=10_000, description="of a run: of twice as many the older half is deleted"
    )
    snapshot_versions_max: int = Field(
        20, ge=1, le=20, description="of a run, between two links: the cadence stays at or below"
    )
    snapshot_learned: bool = Field(
        default=False, description="a bounded learned factor on the cadence of snapshots"
    )
    erasure: bool = Field(
        default=False, description="the start-up checks see that erasures can have a date"
    )
    stall_detector: Literal["learned", "fixed"] = Field(
        "learned", description="thresholds for silence: from what was seen, or plain multiples"
    )
    health_functions: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="`module:function,…` that policies may name as health checks"
    )

    security: KafkaSecurity = Field(default_factory=KafkaSecurity)
    archive: ArchiveSettings = Field(default_factory=ArchiveSettings)
    blobs: BlobSettings = Field(default_factory=BlobSettings)

    @field_validator("mac_keys", mode="before")
    @classmethod
    def _parse_keys(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        keys: dict[str, bytes] = {}
        for name, text in _pairs(value, "id:hex,id:hex"):
            try:
                keys[name] = bytes.fromhex(text)
            except ValueError:
                raise ValueError(f"what follows {name!r} is no hex") from None
        Keyring(keys)
        return keys

    @field_validator("webhook_secrets", mode="before")
    @classmethod
    def _parse_secrets(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = _pairs(value, "id:whsec_base64,id:whsec_base64")
        return {name: secret_of(text) for name, text in pairs}

    @field_validator("health_functions", mode="before")
    @classmethod
    def _parse_functions(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        found = tuple(item.strip() for item in value.split(",") if item.strip())
        for item in found:
            module, colon, function = item.partition(":")
            if not (module and colon and function):
                raise ValueError(f"{item!r}: write `module:function,module:function`")
        return found

    @field_validator("http_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("write http://host:port, as the other engines reach this one")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ValueError(
                "DALSEGNO_SESSION_TIMEOUT_MS: at least three times DALSEGNO_HEARTBEAT_INTERVAL_MS"
            )
        if 0 < self.memory_bytes_max < self.memory_bytes:
            raise ValueError("DALSEGNO_MEMORY_BYTES_MAX: at least DALSEGNO_MEMORY_BYTES")
        return self

    @property
    def topics(self) -> Topics:
        """The topic names under the prefix."""
        return Topics(self.prefix)

    @property
    def memory_bound(self) -> int:
        """Bytes that may be kept in memory, of runs and of what waits for the local databases."""
        return self.memory_bytes_max or 2 * self.memory_bytes

    @property
    def archive_prefix(self) -> str:
        """What the keys of the archive's objects begin with."""
        return self.archive.prefix or self.prefix

    @property
    def group(self) -> str:
        """The consumer group of the engines."""
        return f"{self.prefix}-engine"

    @property
    def keyring(self) -> Keyring:
        """The MAC keys of the settings."""
        return Keyring(self.mac_keys)

    @property
    def signing_key(self) -> str:
        """The id of the key that signs what this engine appends; empty if there is none."""
        return next(iter(self.mac_keys), "")

    def signing_key_in(self, in_force: tuple[str, ...]) -> str:
        """The first of the keys that is in force; empty if none is. An empty list names all."""
        return next((each for each in self.mac_keys if not in_force or each in in_force), "")

    @property
    def owner(self) -> str:
        """What claims call this process."""
        return self.name or f"{socket.gethostname()}-{os.getpid()}"


def _pairs(text: str, shape: str) -> list[tuple[str, str]]:
    """`id:secret` items. Raises `ValueError` without any secret: no colon, or an id twice."""
    found: list[tuple[str, str]] = []
    for item in filter(None, (each.strip() for each in text.split(","))):
        name, colon, secret = item.partition(":")
        if not colon:
            raise ValueError(f"write it as `{shape}`")
        if name.strip() in {known for known, _ in found}:
            raise ValueError(f"{name.strip()!r} is there twice")
        found.append((name.strip(), secret.strip()))
    return found
