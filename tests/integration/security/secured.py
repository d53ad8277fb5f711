"""A broker with four secured listeners, and what its clients need to know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.integration.security.certificates import Authority, Files

from dalsegno.ops.embedded import EmbeddedKafka

USER = "service"
PASSWORD = "correct-horse-battery"
KEY_PASSWORD = "staple-of-the-key"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LISTENERS = {"SASL": "SASL_SSL", "TLS": "SSL", "MUTUAL": "SSL", "MISNAMED": "SSL"}
"""`SASL`: SCRAM and PLAIN over TLS. `MUTUAL`: asks for a certificate of the client. `MISNAMED`: its
certificate is of another host.
"""


@dataclass(frozen=True)
class Secured:
    """The running broker, and the files of its authority, of another one, and of a client."""

    kafka: EmbeddedKafka
    authority: Path
    stranger: Path
    client: Files

    def variables(self, listener: str, **more: str) -> dict[str, str]:
        """DALSEGNO_ variables for a listener, as an operator would set them."""
        values = {
            "BOOTSTRAP_SERVERS": self.kafka.address(listener),
            "SECURITY_PROTOCOL": LISTENERS[listener],
            "SSL_CA_FILE": str(self.authority),
        }
        if listener == "SASL":
            values |= {"SASL_USERNAME": USER, "SASL_PASSWORD": PASSWORD}
        if listener == "MUTUAL":
            values |= {
                "SSL_CERT_FILE": str(self.client.certificate),
                "SSL_KEY_FILE": str(self.client.key),
                "SSL_KEY_PASSWORD": KEY_PASSWORD,
            }
        return {f"DALSEGNO_{name}": value for name, value in {**values, **more}.items()}


@contextmanager
def secured_kafka(folder: Path) -> Iterator[Secured]:
    """The embedded Kafka behind certificates of an authority that exists for this test only."""
    authority, stranger = Authority(folder, "authority"), Authority(folder, "stranger")
    broker = authority.issue("broker", "127.0.0.1", "localhost")
    misnamed = authority.issue("misnamed", "kafka.elsewhere.example")
    client = authority.issue("client", "client.example", password=KEY_PASSWORD)
    config = {}
    for name in LISTENERS:
        own = f"listener.name.{name.lower()}"
        store = misnamed if name == "MISNAMED" else broker
        config |= {
            f"{own}.ssl.keystore.type": "PEM",
            f"{own}.ssl.keystore.location": str(store.both),
            f"{own}.ssl.truststore.type": "PEM",
            f"{own}.ssl.truststore.location": str(authority.file),
            f"{own}.ssl.client.auth": "required" if name == "MUTUAL" else "none",
        }
    sasl = "listener.name.sasl"
    config |= {
        f"{sasl}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"{sasl}.plain.sasl.jaas.config": f'{_PLAIN} required user_{USER}="{PASSWORD}";',
        f"{sasl}.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        f"{sasl}.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
    }
    with EmbeddedKafka(config=config, listeners=LISTENERS) as kafka:
        _add_user(kafka.bootstrap)
        yield Secured(kafka, authority.file, stranger.file, client)


def _add_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
        )
        for future in admin.alter_user_scram_credentials([wanted]).values():
            future.result(20)
