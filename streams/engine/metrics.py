"""The catalogue's metrics as Prometheus collectors, in a registry of this engine's own."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dalsegno.streams.engine import metrics_catalogue as catalogue
from dalsegno.streams.engine.checkpoint import CheckpointDone
from dalsegno.streams.engine.metrics_catalogue import OTHER, Kind, Metric
from dalsegno.streams.engine.signals import Signals

_REASONS_MAX: Final = 100


class BoundedLabel:
    """Lets the first values through, and calls the rest `other`."""

    def __init__(self, values_max: int) -> None:
        self._values_max = values_max
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value not in self._known:
            if len(self._known) >= self._values_max:
                return OTHER
            self._known.add(value)
        return value


class EngineMetrics:
    """Counters of one engine. Gauges of the present state are set when somebody looks
    (`gauges`).
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for metric in catalogue.CATALOGUE:
            self._register(metric)
        self._reason = BoundedLabel(_REASONS_MAX)
        self._flow = BoundedLabel(catalogue.FLOWS_MAX)
        self._channel = BoundedLabel(_REASONS_MAX)
        self._field = BoundedLabel(catalogue.FIELDS_MAX)
        self.signals = Signals(self)

    def _register(self, metric: Metric) -> None:
        match metric.kind:
            case Kind.COUNTER:
                counter = Counter(
                    metric.name, metric.meaning, metric.labels, registry=self.registry
                )
                self._counters[metric.name] = counter
            case Kind.GAUGE:
                gauge = Gauge(metric.name, metric.meaning, metric.labels, registry=self.registry)
                self._gauges[metric.name] = gauge
            case Kind.HISTOGRAM:
                self._histograms[metric.name] = Histogram(
                    metric.name,
                    metric.meaning,
                    metric.labels,
                    buckets=metric.buckets,
                    registry=self.registry,
                )

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Add to a counter, with its labels bounded."""
        counter = self._counters[metric.name]
        (counter.labels(**self._bound(labels)) if labels else counter).inc(amount)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Observe in a histogram."""
        histogram = self._histograms[metric.name]
        (histogram.labels(**self._bound(labels)) if labels else histogram).observe(value)

    def gauge(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[metric.name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def clear(self, metric: Metric) -> None:
        """Forget a gauge's label values: what is no longer owned must not look alive."""
        self._gauges[metric.name].clear()

    def _bound(self, labels: dict[str, str]) -> dict[str, str]:
        bounds = {
            "reason": self._reason,
            "flow": self._flow,
            "channel": self._channel,
            "field": self._field,
        }
        return {
            name: bounds[name](value) if name in bounds else value for name, value in labels.items()
        }

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)

    def applied(self, records: int) -> None:
        """Records went through apply."""
        self._counters[catalogue.EVENTS_APPLIED.name].inc(records)

    def output_omitted(self, channel: str, reason: str) -> None:
        """An output was sent without its value."""
        self.count(catalogue.OUTPUTS_OMITTED, channel=channel, reason=reason)

    def checkpointed(self, done: CheckpointDone) -> None:
        """A checkpoint was committed."""
        self.observe(catalogue.CHECKPOINT_TIME, done.took_s)
        self.count(catalogue.CHECKPOINT_BYTES, done.size_bytes)
        self.count(catalogue.CHECKPOINT_RECORDS, done.records)

    def rebuilt(self, cause: str) -> None:
        """A partition task ended and begins again."""
        self.count(catalogue.REBUILDS, cause=cause)

    def stopped(self, reason: str) -> None:
        """A partition waits for a person."""
        self.count(catalogue.STOPS, reason=reason)
