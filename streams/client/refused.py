"""Why a broker does not let us in, as one line that says what to do.

librdkafka goes on trying for ever and reports a wrong password as a broker that does not answer;
the cause only comes by `error_cb`. `Complaints` is that callback. Of a certificate librdkafka says
no more than that it was not verified, so the reason is asked for by a handshake of our own.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from dalsegno.streams.client.errors import DeliveryFailed, SettingsError

Properties = Mapping[str, object]
P = TypeVar("P")
C = TypeVar("C")

_PROBE_S: Final = 3.0
_BROKER: Final = re.compile(r"://(?P<host>[^/\s]+):(?P<port>\d+)/")
_OTHER_HOST: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


class Cause(StrEnum):
    """What the broker and we do not agree on."""

    CREDENTIALS = "credentials"
    MECHANISM = "mechanism"
    UNTRUSTED = "untrusted"
    HOST_NAME = "host_name"
    OUR_CERTIFICATE = "our_certificate"
    NO_TLS = "no_tls"
    TLS = "tls"
    RIGHTS = "rights"
    SETTINGS = "settings"


_REMEDIES: Final[dict[Cause, str]] = {
    Cause.CREDENTIALS: "refuses the user name or the password: check DALSEGNO_SASL_USERNAME and "
    "DALSEGNO_SASL_PASSWORD, and that the user has a credential for the mechanism",
    Cause.MECHANISM: "does not offer the SASL mechanism: set DALSEGNO_SASL_MECHANISM to one that "
    "it offers, or DALSEGNO_SECURITY_PROTOCOL=SSL where it asks for none",
    Cause.UNTRUSTED: "shows a certificate that is not trusted: set DALSEGNO_SSL_CA_FILE to the "
    "authority that signed it",
    Cause.HOST_NAME: "shows the certificate of another host: connect by a name that is in it, or "
    "have it issued for this one (DALSEGNO_SSL_CHECK_HOSTNAME=false gives the check up)",
    Cause.OUR_CERTIFICATE: "asks for a certificate of ours and got none that it accepts: set "
    "DALSEGNO_SSL_CERT_FILE and DALSEGNO_SSL_KEY_FILE to one that its authority signed",
    Cause.NO_TLS: "does not speak TLS on this port: choose its secured port, or another "
    "DALSEGNO_SECURITY_PROTOCOL",
    Cause.TLS: "and we agree on no TLS connection: compare DALSEGNO_SECURITY_PROTOCOL and the "
    "DALSEGNO_SSL_… settings with its listener",
    Cause.RIGHTS: "does not let the user do this: give it the rights that the page on operations "
    "lists for who runs this (`kafka-acls`), or set DALSEGNO_SASL_USERNAME to one that has them",
    Cause.SETTINGS: "cannot be asked, the settings are wrong",
}

_NO_RIGHT: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_SIGNS: Final = (
    ("mechanism handshake failed", Cause.MECHANISM),
    ("certificate verify failed", Cause.UNTRUSTED),
    ("alert certificate required", Cause.OUR_CERTIFICATE),
    ("alert bad certificate", Cause.OUR_CERTIFICATE),
    ("alert unknown ca", Cause.OUR_CERTIFICATE),
    ("PLAINTEXT broker listener", Cause.NO_TLS),
    ("wrong version number", Cause.NO_TLS),
)

_FILES: Final = {
    "ssl.ca.location": "DALSEGNO_SSL_CA_FILE: no PEM file with certificates",
    "ssl.certificate.location": "DALSEGNO_SSL_CERT_FILE: no PEM file with a certificate",
    "ssl.key.location": "DALSEGNO_SSL_KEY_FILE: no PEM file with a private key, or "
    "DALSEGNO_SSL_KEY_PASSWORD does not open it",
    "sasl.username": "DALSEGNO_SASL_USERNAME and DALSEGNO_SASL_PASSWORD must be set for SASL",
    "sasl.mechanism": "DALSEGNO_SASL_MECHANISM is none that this client knows",
    "security.protocol": "DALSEGNO_SECURITY_PROTOCOL is none that this client knows",
}


class BrokerRefused(SettingsError):  # noqa: N818 - says what is the case
    """A broker was reached and does not let us in, or the security settings are of no use.

    Mend the settings; a retry cannot help. `cause` says which, `broker` is `host:port` or empty.
    """

    def __init__(self, cause: Cause, broker: str, detail: str) -> None:
        who = f"broker {broker}" if broker else "the broker"
        super().__init__(f"{who} {_REMEDIES[cause]} ({detail})")
        self.cause = cause
        self.broker = broker
        self.detail = detail


class Complaints:
    """`error_cb` of one Kafka client: keeps what says that we are refused, not merely alone."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """Called by librdkafka while its client is polled; never raises."""
        if _cause(error) is not None:
            self._last = error

    def forget(self) -> None:
        """Before a new try: what was said before counts no longer."""
        self._last = None

    def refusal(self, properties: Properties) -> BrokerRefused | None:
        """The refusal, or None when nobody refused us. May take a handshake of our own (3 s).

        `properties`: of the client, in librdkafka's names.
        """
        error = self._last
        cause = None if error is None else _cause(error)
        if error is None or cause is None:
            return None
        said = error.str()
        found = _BROKER.search(said)
        broker = f"{found['host']}:{found['port']}" if found else ""
        detail = re.sub(r" \(after \d+ms in state \w+\)$", "", said.partition("/bootstrap: ")[2])
        if cause is Cause.UNTRUSTED and found:
            authority = str(properties.get("ssl.ca.location") or "")
            cause, detail = _ask(found["host"], int(found["port"]), authority)
        return BrokerRefused(cause, broker, detail or said)


def rights_refusal(error: KafkaError, what: str = "") -> BrokerRefused | None:
    """The refusal, if a broker says that the user lacks a right; `what` was asked of it."""
    if error.code() not in _NO_RIGHT:
        return None
    said = f"{error.name()}: {error.str()}"
    return BrokerRefused(Cause.RIGHTS, "", f"{what}: {said}" if what else said)


def refused_delivery(error: DeliveryFailed) -> BrokerRefused | None:
    """The refusal, if a record was not taken since the user lacks a right."""
    if error.code not in {KafkaError(code).name() for code in _NO_RIGHT}:
        return None
    return BrokerRefused(Cause.RIGHTS, "", str(error))


def raise_if_no_right(error: object, what: str = "") -> None:
    """Raises `BrokerRefused` for a `KafkaError` that says so; anything else passes."""
    if isinstance(error, KafkaError) and (refusal := rights_refusal(error, what)) is not None:
        raise refusal


def connect(factory: Callable[[P], C], properties: P) -> C:
    """The client that `factory` makes. Raises `BrokerRefused` for files and settings of no use."""
    try:
        return factory(properties)
    except KafkaException as error:
        cause = error.args[0]
        if not isinstance(cause, KafkaError) or cause.code() != KafkaError._INVALID_ARG:
            raise
        said = cause.str()
        told = next((text for name, text in _FILES.items() if name in said), "")
        raise BrokerRefused(Cause.SETTINGS, "", told or said) from error


def _cause(error: KafkaError) -> Cause | None:
    said = error.str()
    found = next((cause for sign, cause in _SIGNS if sign in said), None)
    if found is not None:
        return found
    if error.code() == KafkaError._AUTHENTICATION:
        return Cause.CREDENTIALS
    return Cause.TLS if error.code() == KafkaError._SSL else None


def _ask(host: str, port: int, authority: str) -> tuple[Cause, str]:
    """Why the certificate of this broker is not accepted, by a handshake that sends nothing."""
    context = ssl.create_default_context(cafile=authority or None)
    try:
        with (
            socket.create_connection((host, port), _PROBE_S) as link,
            context.wrap_socket(link, server_hostname=host),
        ):
            return Cause.TLS, "a second handshake went well: try again"
    except ssl.SSLCertVerificationError as error:
        other = error.verify_code in _OTHER_HOST
        return (Cause.HOST_NAME if other else Cause.UNTRUSTED), error.verify_message
    except OSError as error:
        return Cause.UNTRUSTED, f"not verified, and no second handshake: {error}"
