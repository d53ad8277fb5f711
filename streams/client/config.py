"""Settings of clients and workers: frozen values, read once.

Arguments come first, then the environment: `DALSEGNO_BOOTSTRAP_SERVERS`, `DALSEGNO_PREFIX`,
`DALSEGNO_SECURITY_PROTOCOL`, `DALSEGNO_SASL_MECHANISM`, `DALSEGNO_SASL_USERNAME`,
`DALSEGNO_SASL_PASSWORD`, `DALSEGNO_SSL_CA_FILE`, `DALSEGNO_SSL_CERT_FILE`,
`DALSEGNO_SSL_KEY_FILE`, `DALSEGNO_SSL_KEY_PASSWORD`, `DALSEGNO_SSL_CHECK_HOSTNAME`,
`DALSEGNO_REGISTRY_URL`, `DALSEGNO_REGISTRY_USERNAME`, `DALSEGNO_REGISTRY_PASSWORD`,
`DALSEGNO_REGISTRY_CA_FILE`, `DALSEGNO_BLOBS_FROM_BYTES`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dalsegno.schemas.topics import Topics
from dalsegno.streams.client.dev_env import DATA_FOLDER, read_env
from dalsegno.streams.client.errors import SettingsError
from dalsegno.streams.client.kafka_log import kafka_log
from dalsegno.streams.client.schema_registry import RegistrySettings

KafkaConfig = dict[str, str | int | float | bool | object]
"""What librdkafka is given: its own property names."""

_LOG = logging.getLogger("dalsegno.client")
_MECHANISM = "SCRAM-SHA-512"  # as the engine's default; librdkafka's own is Kerberos
_TRUE = frozenset({"true", "t", "1", "yes", "y", "on"})
_FALSE = frozenset({"false", "f", "0", "no", "n", "off"})


@dataclass(frozen=True, slots=True)
class Security:
    """How to reach the brokers: TLS and SASL under librdkafka's meaning of the words. Empty: not
    set.
    """

    protocol: str = ""
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = field(default="", repr=False)
    ssl_check_hostname: bool = True

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Security:
        """Read from the variables that the module's text lists. Raises `SettingsError`."""
        return cls(
            protocol=env.get("DALSEGNO_SECURITY_PROTOCOL", ""),
            sasl_mechanism=env.get("DALSEGNO_SASL_MECHANISM", ""),
            sasl_username=env.get("DALSEGNO_SASL_USERNAME", ""),
            sasl_password=env.get("DALSEGNO_SASL_PASSWORD", ""),
            ssl_ca_location=env.get("DALSEGNO_SSL_CA_FILE", ""),
            ssl_certificate_location=env.get("DALSEGNO_SSL_CERT_FILE", ""),
            ssl_key_location=env.get("DALSEGNO_SSL_KEY_FILE", ""),
            ssl_key_password=env.get("DALSEGNO_SSL_KEY_PASSWORD", ""),
            ssl_check_hostname=_flag(env, "DALSEGNO_SSL_CHECK_HOSTNAME", unset=True),
        )

    def properties(self) -> KafkaConfig:
        """librdkafka properties of what is set."""
        sasl = self.protocol.upper().startswith("SASL")
        named = {
            "security.protocol": self.protocol,
            "sasl.mechanisms": self.sasl_mechanism or (_MECHANISM if sasl else ""),
            "sasl.username": self.sasl_username,
            "sasl.password": self.sasl_password,
            "ssl.ca.location": self.ssl_ca_location,
            "ssl.certificate.location": self.ssl_certificate_location,
            "ssl.key.location": self.ssl_key_location,
            "ssl.key.password": self.ssl_key_password,
            "ssl.endpoint.identification.algorithm": "" if self.ssl_check_hostname else "none",
        }
        return {name: value for name, value in named.items() if value}


def _flag(env: Mapping[str, str], name: str, *, unset: bool) -> bool:
    """A variable that is true or false, in the words that the engine's settings take."""
    text = env.get(name)
    if text is None:
        return unset
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise SettingsError(f"{name} is {text!r}: write true or false")
    return word in _TRUE


def _bytes(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "").strip() or "0"
    if not text.isascii() or not text.isdigit():
        raise SettingsError(f"{name} is {text!r}: write a number of bytes, or 0 for never")
    return int(text)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Where the brokers are and how long to try. Times in milliseconds.

    `delivery_timeout_ms`: how long a record may take to be acknowledged before the caller is told.
    `queue_messages_max`: bound on records that wait locally; a full queue pushes back.
    `blobs_from_bytes`: values whose packed bytes are more go to the engines' blob store, not into
    events; 0: none.
    """

    bootstrap_servers: str
    prefix: str = "dalsegno"
    security: Security = Security()
    delivery_timeout_ms: int = 30_000
    request_timeout_ms: int = 10_000
    queue_messages_max: int = 100_000
    linger_ms: float = 0.0
    registry: RegistrySettings = field(default_factory=RegistrySettings)
    blobs_from_bytes: int = 0

    @classmethod
    def resolve(
        cls,
        bootstrap_servers: str | None = None,
        prefix: str | None = None,
        security: Security | None = None,
    ) -> ClientConfig:
        """Arguments first, then the environment; where neither names a broker, the one of a
        `dalsegno dev` in this folder. Raises `SettingsError` when there is none.
        """
        env: Mapping[str, str] = os.environ
        servers = bootstrap_servers or env.get("DALSEGNO_BOOTSTRAP_SERVERS", "")
        if not servers and (found := read_env(Path(DATA_FOLDER))):
            env = {**found, **env}
            servers = env.get("DALSEGNO_BOOTSTRAP_SERVERS", "")
            _LOG.info("the broker is that of `dalsegno dev` in this folder: %s", servers)
        if not servers:
            raise SettingsError(
                "no broker is named: pass bootstrap_servers=, set DALSEGNO_BOOTSTRAP_SERVERS "
                "(host:port,...), or work in the folder where `dalsegno dev` runs"
            )
        return cls(
            bootstrap_servers=servers,
            prefix=prefix or env.get("DALSEGNO_PREFIX") or "dalsegno",
            security=security or Security.from_env(env),
            registry=RegistrySettings.from_env(env),
            blobs_from_bytes=_bytes(env, "DALSEGNO_BLOBS_FROM_BYTES"),
        )

    @property
    def topics(self) -> Topics:
        """The contract's topic names under the prefix."""
        return Topics(self.prefix)

    def connection(self, client_id: str) -> KafkaConfig:
        """What every Kafka client of the SDK has. Its log lines go to `dalsegno.client.kafka`."""
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": client_id,
            # A broker that was restarted is found again within a second, not after ten.
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "socket.keepalive.enable": True,
            # A broker that stands still is noticed by the request's own bound, not after a minute.
            "socket.timeout.ms": max(self.request_timeout_ms, 1_000),
            "socket.nagle.disable": True,
            "log.connection.close": False,
            "logger": kafka_log(),
            **self.security.properties(),
        }

    def producer(self, client_id: str) -> KafkaConfig:
        """Idempotent, all replicas acknowledge; the SDK names the partition of every record
        itself.
        """
        return {
            **self.connection(client_id),
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "linger.ms": self.linger_ms,
            "message.timeout.ms": self.delivery_timeout_ms,
            "request.timeout.ms": self.request_timeout_ms,
            "queue.buffering.max.messages": self.queue_messages_max,
        }

    def reader(self, client_id: str) -> KafkaConfig:
        """A consumer that is given its partitions by `assign` and commits nothing."""
        return {
            **self.connection(client_id),
            "group.id": f"{self.prefix}.reader",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 500,
            "fetch.error.backoff.ms": 50,
        }


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How a worker works. Times in milliseconds.

    `lease_ms`: the worker lease; shorter than the smallest threshold for `silent` (10 s).
    `session_timeout_ms`: how long the group keeps this worker's place; longer than its restart.
    `stop_timeout_ms`: how long a stop waits for steps that run.
    `blob_cache_bytes`: of large values that are kept to be read again.
    """

    concurrency: int = 200
    lease_ms: int = 8_000
    heartbeat_interval_ms: int = 1_000
    session_timeout_ms: int = 10_000
    group_heartbeat_ms: int = 1_000
    stop_timeout_ms: int = 30_000
    seen_max: int = 100_000
    blob_cache_bytes: int = 64 << 20

    def consumer(
        self, config: ClientConfig, client_id: str, group: str, instance: str
    ) -> KafkaConfig:
        """A static member under the classic protocol; offsets are committed by hand only."""
        return {
            **config.connection(client_id),
            "group.id": group,
            "group.instance.id": instance,
            "group.protocol": "classic",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": self.group_heartbeat_ms,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "topic.metadata.refresh.interval.ms": 60_000,
        }
