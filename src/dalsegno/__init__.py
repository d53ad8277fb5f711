"""dalsegno: recovery for multi-step work on Kafka."""

__version__ = "0.1.0"
