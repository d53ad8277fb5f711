"""One set of security settings, said in the words of each Kafka library."""

from __future__ import annotations

import ssl
from typing import Any

from dalsegno.streams.engine.settings import EngineSettings, KafkaSecurity


def ssl_context(security: KafkaSecurity) -> ssl.SSLContext | None:
    """The TLS context, or None where the protocol has no TLS."""
    if "SSL" not in security.security_protocol:
        return None
    context = ssl.create_default_context(cafile=security.ssl_ca_file or None)
    context.check_hostname = security.ssl_check_hostname
    if security.ssl_cert_file:
        password = security.ssl_key_password.get_secret_value() or None
        context.load_cert_chain(
            security.ssl_cert_file, security.ssl_key_file or None, password=password
        )
    return context


def aiokafka_options(settings: EngineSettings) -> dict[str, Any]:
    """Bootstrap, timeouts and security for aiokafka clients."""
    security = settings.security
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers.split(","),
        "request_timeout_ms": settings.request_timeout_ms,
        "metadata_max_age_ms": settings.metadata_age_max_ms,
        "security_protocol": security.security_protocol,
        "ssl_context": ssl_context(security),
    }
    if security.security_protocol.startswith("SASL"):
        options |= {
            "sasl_mechanism": security.sasl_mechanism,
            "sasl_plain_username": security.sasl_username,
            "sasl_plain_password": security.sasl_password.get_secret_value(),
        }
    return options


def librdkafka_options(settings: EngineSettings) -> dict[str, str | int | bool]:
    """Bootstrap, timeouts and security for confluent-kafka clients."""
    security = settings.security
    options: dict[str, str | int | bool] = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": security.security_protocol,
        # A small request must not wait until the one before is acknowledged by the other's kernel.
        "socket.nagle.disable": True,
        "log_level": 0,
    }
    if "SSL" in security.security_protocol:
        files = {
            "ssl.ca.location": security.ssl_ca_file,
            "ssl.certificate.location": security.ssl_cert_file,
            "ssl.key.location": security.ssl_key_file,
            "ssl.key.password": security.ssl_key_password.get_secret_value(),
        }
        options |= {name: value for name, value in files.items() if value}
        if not security.ssl_check_hostname:
            options["ssl.endpoint.identification.algorithm"] = "none"
    if security.security_protocol.startswith("SASL"):
        options |= {
            "sasl.mechanism": security.sasl_mechanism,
            "sasl.username": security.sasl_username,
            "sasl.password": security.sasl_password.get_secret_value(),
        }
    return options


def faust_credentials(settings: EngineSettings) -> Any:  # noqa: ANN401 - untyped upstream
    """What `faust.App(broker_credentials=…)` takes."""
    import faust

    security = settings.security
    context = ssl_context(security)
    if security.security_protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=security.sasl_username,
            password=security.sasl_password.get_secret_value(),
            ssl_context=context,
            mechanism=security.sasl_mechanism,
        )
    return faust.SSLCredentials(context=context) if context is not None else None
