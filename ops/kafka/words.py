"""What Kafka's client raises, in words that say what to do: its own text is a dump."""

from confluent_kafka import KafkaError, KafkaException

from dalsegno.ops.remedies import BROKERS_REMEDY
from dalsegno.streams.client.refused import rights_refusal

_UNREACHED = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


def kafka_words(error: Exception) -> str | None:
    """None for errors of others."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no Kafka answers in time; {BROKERS_REMEDY}"
    if not isinstance(error, KafkaException):
        return None
    fault = error.args[0] if error.args else None
    if not isinstance(fault, KafkaError):
        return None
    if fault.code() in _UNREACHED:
        return f"no Kafka answers: {fault.str()}; {BROKERS_REMEDY}"
    if (refusal := rights_refusal(fault)) is not None:
        return f"{refusal}"
    return f"Kafka refused it ({fault.name()}): {fault.str()}"
