"""docs/metrics.md, from the catalogue: `python -m dalsegno.streams.engine.metrics_doc >
docs/metrics.md`.
"""

from __future__ import annotations

import sys

from dalsegno.streams.engine.metrics_catalogue import CATALOGUE, LABELS

_HEAD = """# Metrics

Every engine serves these at `/metrics`, in the Prometheus format. This page is generated from
`streams/engine/metrics_catalogue.py`; a test keeps both equal.

Signals of a flow, from the rows below:

* mean time to recovery: `dalsegno_recovery_seconds_sum / dalsegno_recovery_seconds_count`
* rework rate: `dalsegno_steps_redispatched_total / dalsegno_steps_dispatched_total`
* state-conflict rate: `dalsegno_state_conflicts_total / dalsegno_events_read_total`
* clarity of escalations: `dalsegno_escalations_again_total / dalsegno_escalations_total`, and time
  to decision: `dalsegno_escalation_decision_seconds_sum / …_count`

`dalsegno_events` over all outcomes plus `dalsegno_events_waiting` is the number of records of a
partition that were read: an event has exactly one outcome, or waits.

"""


def page() -> str:
    """The whole page, in Markdown."""
    lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in sorted(CATALOGUE, key=lambda metric: metric.name):
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    lines += ["", "Labels, and what bounds them:", "", "| label | values |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in sorted(LABELS.items())]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
