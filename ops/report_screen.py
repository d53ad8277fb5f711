"""A flow's report as rows for people, and as a document for programs."""

from collections.abc import Iterator

import msgspec

from dalsegno.streams.core.signals.figures import FlowReport, Spread, Troubled
from dalsegno.streams.core.signals.missing import Missing

ACT = {
    Missing.IDENTITY: "who speaks: run, step, epoch; one source per attempt, none that outlives it",
    Missing.VERSION: "read the newest version before you write or decide; upgrade workers together",
    Missing.GOAL: "give the step a goal; say in the failure what a person has to settle",
    Missing.INPUTS: "declare and write the field earlier, or name who supplies it",
    Missing.RETURN: "heartbeats, a timeout, and a typed failure on every way out of the step",
    Missing.NOTHING: "look outside: dependencies and their fault points",
}
"""What to do about it, in a line; docs/report.md says more."""


def signal_rows(report: FlowReport) -> Iterator[tuple[str, str, str]]:
    """Each signal: its name, its value, and what it was computed from."""
    recovery, rework = report.recovery, report.rework
    conflicts, clarity = report.conflicts, report.clarity
    yield (
        "mean time to recovery",
        _seconds(recovery.took, recovery.mean_ms),
        (
            f"{_spread(recovery.took, 'recovered')}; {recovery.given_up} given up, "
            f"{recovery.open} not yet whole"
        ),
    )
    yield (
        "rework rate",
        f"{rework.rate:.4f}",
        f"{rework.attempts - rework.steps} attempts beyond the first of {rework.steps} steps",
    )
    yield (
        "state-conflict rate",
        f"{conflicts.rate:.4f}",
        (
            f"{conflicts.superseded} superseded, {conflicts.refused} refused of "
            f"{conflicts.events} events"
        ),
    )
    yield (
        "escalations: time to decision",
        _seconds(clarity.took, clarity.took.mean_ms),
        (
            f"{_spread(clarity.took, 'decided')}; {clarity.open} open, "
            f"{clarity.unanswered} closed without a decision"
        ),
    )
    yield (
        "escalations: asked again",
        f"{clarity.again_share:.4f}" if clarity.asked else "-",
        f"{clarity.again} of {clarity.asked} packages",
    )


def missing_rows(report: FlowReport) -> Iterator[tuple[str, int, str]]:
    """The last troubled runs by what was missing first, most frequent first."""
    found = sorted(report.missing.items(), key=lambda each: -each[1])
    for missing, runs in found:
        if runs:
            yield str(missing), runs, ACT[missing]


def trouble_row(run: Troubled) -> tuple[str, str, str, str, str]:
    """Run, state, what was missing first, where it showed, and what was missing then."""
    first = next(each for each in run.findings if each.missing is run.missing)
    others = dict.fromkeys(str(each.missing) for each in run.findings)
    also = [name for name in others if name not in {run.missing, Missing.NOTHING}]
    step = f"{first.step}:{first.epoch}" if first.epoch else first.step
    place = f"{run.partition}:{first.offset}"
    why = f"{first.why} ({' '.join(filter(None, (step, 'at', place)))})"
    return run.run_id, str(run.state or "refused"), str(run.missing), why, ", ".join(also) or "-"


def document(report: FlowReport) -> dict[str, object]:
    """All of it as plain values; the signals themselves under `signals`."""
    fields: dict[str, object] = {
        name: getattr(report, name)
        for name in ("flow", "runs", "recovery", "rework", "conflicts", "clarity")
    }
    return {
        **fields,
        "states": {str(state or "refused"): count for state, count in report.states.items()},
        "signals": {
            "mean_time_to_recovery_ms": report.recovery.mean_ms,
            "rework_rate": report.rework.rate,
            "state_conflict_rate": report.conflicts.rate,
            "time_to_decision_ms": report.clarity.took.mean_ms,
            "asked_again_share": report.clarity.again_share,
        },
        "missing": {str(name): count for name, count in report.missing.items()},
        "troubled_runs": report.troubled_runs,
        "troubled": [
            {"missing": run.missing, **msgspec.structs.asdict(run)} for run in report.troubled
        ],
    }


def _seconds(spread: Spread, mean_ms: float) -> str:
    return f"{mean_ms / 1_000:.2f} s" if spread.count else "-"


def _spread(spread: Spread, what: str) -> str:
    if not spread.count:
        return f"0 {what}"
    return (
        f"{spread.count} {what}; median {spread.median_ms / 1_000:.2f} s, 95 % within "
        f"{spread.p95_ms / 1_000:.2f} s, longest {spread.max_ms / 1_000:.2f} s"
    )
