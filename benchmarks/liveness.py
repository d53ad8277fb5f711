"""Stall detection: our detector against others, the acceptance numbers, and what it costs.

    python -m benchmarks.liveness [--seeds 5] [--duration-s 3600]

Ends with exit code 1 if an acceptance number is missed. The real inputs lie beside the project;
what needs them is left out, and said so, where they are absent.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from benchmarks.liveness_rivals import RIVALS, Gaps, curve, quickest
from benchmarks.liveness_traces import (
    DATA,
    TimedStep,
    Trace,
    agent_steps,
    crash,
    round_trips,
    synthetic,
)

from dalsegno.schemas.control import StallSuspected, Verdict
from dalsegno.schemas.liveness import Canary, Heartbeat, Held
from dalsegno.streams.core.attempt import Attempt
from dalsegno.streams.core.liveness import FixedDetector, LivenessSettings, Monitor, Reading
from dalsegno.streams.core.liveness.clock import PartitionClock
from dalsegno.streams.core.liveness.detector import HistogramDetector
from dalsegno.streams.core.liveness.kinds import DetectorFactory

EPOCH_MS = 1_700_000_000_000
LIMIT_S = 300
NEVER_MS = 10**15
# Repeats and the rate limit would blur the counts.
SETTINGS = LivenessSettings(repeat_ms=10**12, repeat_ms_max=10**12, verdicts_per_s=10**6)


@dataclass(frozen=True)
class Check:
    """One acceptance number."""

    name: str
    measured: str
    wanted: str
    passed: bool


def _attempt(run: str, step_type: str, *, at_ms: int = EPOCH_MS, limit_s: int = 0) -> Attempt:
    return Attempt(
        run_id=run,
        step="s",
        epoch=1,
        step_type=step_type,
        running=True,
        queue="q",
        since_ms=at_ms,
        heartbeat_ms=1_000,
        timeout_ms=limit_s * 1_000,
    )


def _judge(monitor: Monitor, at_ms: int) -> list[StallSuspected]:
    if not monitor.ask(at_ms):
        return []
    reading = Reading(
        events_offset=0, events_end=0, heartbeats_offset=0, heartbeats_end=0, log_ms=at_ms
    )
    return monitor.caught_up(reading)


def watch(
    trace: Trace, new_detector: DetectorFactory = HistogramDetector, *, cap_ms: int | None = None
) -> list[tuple[int, StallSuspected]]:
    """Run a monitor over a trace: (append time in ms since the start, verdict) of each.

    Each source is a type of its own, as in the measurements that the numbers come from. `cap_ms`
    replaces the clock's cap: a large one makes it a plain clock.
    """
    cap_ms = SETTINGS.clock_cap_ms if cap_ms is None else cap_ms
    settings = LivenessSettings(
        clock_cap_ms=cap_ms,
        repeat_ms=SETTINGS.repeat_ms,
        repeat_ms_max=SETTINGS.repeat_ms_max,
        verdicts_per_s=SETTINGS.verdicts_per_s,
    )
    monitor = Monitor(0, settings=settings, new_detector=new_detector)
    sources, count = trace.appended_s.shape
    for source in range(sources):
        monitor.attempt((f"r{source}", "s"), _attempt(f"r{source}", f"t{source}"))
    beats = [
        Heartbeat(
            partition=0,
            worker=f"w{source}",
            incarnation=0,
            held=(Held(run_id=f"r{source}", step="s", epoch=1),),
        )
        for source in range(sources)
    ]
    canary = Canary(partition=0, monitor="m", number=0)
    times_ms = (np.concatenate([trace.appended_s.ravel(), trace.canaries_s]) * 1_000).astype(int)
    who = np.concatenate([np.repeat(np.arange(sources), count), np.full(len(trace.canaries_s), -1)])
    order = np.argsort(times_ms, kind="stable")
    said = []
    for at_ms, source in zip(times_ms[order].tolist(), who[order].tolist(), strict=True):
        if source >= 0:
            monitor.heartbeat(beats[source], EPOCH_MS + at_ms)
        else:
            monitor.canary(canary, EPOCH_MS + at_ms)
            said.extend((at_ms, verdict) for verdict in _judge(monitor, EPOCH_MS + at_ms))
    return said


def on_partition_clock(trace: Trace) -> Gaps:
    """Gaps of each source in seconds of the partition clock, shape (sources, heartbeats - 1)."""
    records_ms = (np.concatenate([trace.appended_s.ravel(), trace.canaries_s]) * 1_000).astype(int)
    records_ms.sort()
    clock = PartitionClock(SETTINGS.clock_cap_ms)
    shown_ms = np.fromiter(map(clock.advance, records_ms.tolist()), float, len(records_ms))
    first = np.searchsorted(records_ms, (trace.appended_s * 1_000).astype(int))
    return np.asarray(np.diff(shown_ms[first], axis=1) / 1_000)


# The comparison.


def compare_synthetic(traces: Iterable[Trace]) -> dict[str, list[str]]:
    """Mean detection (s) with at most 1,000 and 300 mistakes per million, over the traces."""
    found: dict[str, dict[int, list[float]]] = {r.name: {1_000: [], 300: []} for r in RIVALS}
    for trace in traces:
        gaps = on_partition_clock(trace)
        for rival in RIVALS:
            scores = curve(rival, gaps)
            for target, detections in found[rival.name].items():
                best = quickest(scores, target)
                if best is not None:
                    detections.append(best.detection_s)
    return {
        name: [f"{np.mean(d):.2f}" if d else "-" for d in by_target.values()]
        for name, by_target in found.items()
    }


def compare_round_trips(splits: int = 10) -> dict[str, list[str]]:
    """Tuned on half of the real pairs, tested on the others: detection (mistakes) per target."""
    gaps = np.diff(round_trips(), axis=1)
    table: dict[str, list[str]] = {}
    for rival in RIVALS:
        cells = []
        for target in (1_000, 300):
            tests = []
            for seed in range(splits):
                order = np.random.default_rng(seed).permutation(len(gaps))
                half = len(gaps) // 2
                best = quickest(curve(rival, gaps[order[:half]]), target)
                if best is not None:
                    tested = curve(rival, gaps[order[half:]])
                    tests.append(next(s for s in tested if s.parameter == best.parameter))
            mistakes = np.mean([test.mistakes for test in tests])
            cells.append(f"{np.mean([t.detection_s for t in tests]):.2f} ({mistakes:.0f})")
        table[rival.name] = cells
    return table


# The acceptance numbers.


def check_dead(traces: Iterable[Trace]) -> Check:
    """Dead verdicts on sources that all live, among pauses of workers and of the broker."""
    heartbeats = verdicts = 0
    slowest_ms = 0
    for trace in traces:
        heartbeats += trace.heartbeats
        found = watch(trace)
        verdicts += len(found)
        slowest_ms = max([slowest_ms, *(verdict.threshold_ms for _, verdict in found)])
    rate = verdicts / heartbeats * 1e6
    return Check(
        "dead verdicts per 10^6 heartbeats, thresholds as learned",
        f"{rate:.1f} of {heartbeats:,}",
        "<= 50",
        rate <= 50,
    )


def check_dead_at_floor(traces: Iterable[Trace]) -> Check:
    """The same with every threshold at 10 s: what the clock alone makes of it."""
    heartbeats = verdicts = 0
    for trace in traces:
        heartbeats += trace.heartbeats
        verdicts += len(watch(trace, FixedDetector))
    rate = verdicts / heartbeats * 1e6
    return Check(
        "dead verdicts per 10^6 heartbeats at a threshold of 10 s",
        f"{rate:.1f} of {heartbeats:,}",
        "<= 50",
        rate <= 50,
    )


def _four_seconds() -> FixedDetector:
    return FixedDetector(suspect_intervals=4, dead_intervals=4, floor_ms=0)


def check_broker_pauses(seeds: range, duration_s: float) -> Check:
    """Only the broker pauses, threshold 4 s: none with the partition clock, many without."""
    counts = {SETTINGS.clock_cap_ms: 0, NEVER_MS: 0}
    for seed in seeds:
        trace = synthetic(
            steps=50,
            workers=50,
            duration_s=duration_s,
            seed=seed,
            worker_pauses_per_s=0,
            broker_pauses_per_s=1 / 60,
        )
        for cap_ms in counts:
            counts[cap_ms] += len(watch(trace, _four_seconds, cap_ms=cap_ms))
    with_clock, without = counts.values()
    return Check(
        "verdicts from pauses of the broker alone, at 4 s",
        f"{with_clock} (on a plain clock {without:,})",
        "0",
        with_clock == 0 and without > 0,
    )


def check_crash(trials: int = 20) -> Check:
    """The only source of a partition crashes: found each time, and never before."""
    delays_s, early = [], 0
    for seed in range(trials):
        trace, crash_s = crash(seed)
        found = [at_ms / 1_000 - crash_s for at_ms, _ in watch(trace)]
        early += sum(delay_s < 0 for delay_s in found)
        delays_s.extend(delay_s for delay_s in found if delay_s >= 0)
    mean_s = float(np.mean(delays_s)) if delays_s else float("nan")
    return Check(
        "crash of a single source found",
        f"{len(delays_s)} of {trials}, {early} before it, after {mean_s:.1f} s",
        f"{trials} of {trials}, 0 before",
        len(delays_s) == trials and early == 0,
    )


def slow_steps(steps: list[TimedStep]) -> tuple[int, int, int, int]:
    """Run real steps in turn: (at the limit, of them flagged, finished, of them flagged)."""
    monitor = Monitor(0, settings=SETTINGS)
    now_ms = EPOCH_MS
    long = flagged_long = finished = flagged = 0
    for number, step in enumerate(steps):
        key = (f"r{number}", "s")
        monitor.attempt(key, _attempt(key[0], step.name, at_ms=now_ms, limit_s=LIMIT_S))
        beat = Heartbeat(
            partition=0,
            worker="w",
            incarnation=0,
            held=(Held(run_id=key[0], step="s", epoch=1),),
        )
        end_ms = now_ms + int(min(step.duration_s, LIMIT_S) * 1_000)
        slow = False
        while now_ms < end_ms:
            now_ms = min(now_ms + 500, end_ms)
            monitor.heartbeat(beat, now_ms)
            slow |= any(verdict.verdict is Verdict.STUCK for verdict in _judge(monitor, now_ms))
        timed_out = step.duration_s >= LIMIT_S
        long += timed_out
        flagged_long += timed_out and slow
        finished += not timed_out
        flagged += slow and not timed_out
        monitor.attempt(key, None, finished=not timed_out)
    return long, flagged_long, finished, flagged


def check_slow() -> list[Check]:
    """Real agent steps: those that ran into the limit are called slow before it, few others."""
    long, flagged_long, finished, flagged = slow_steps(agent_steps())
    share = flagged / finished * 100
    return [
        Check(
            "steps at their limit flagged slow before it",
            f"{flagged_long} of {long}",
            "78 of 78",
            flagged_long == long == 78,
        ),
        Check(
            "finished steps flagged slow",
            f"{flagged} of {finished:,} ({share:.2f} %)",
            "<= 0.5 %",
            share <= 0.5,
        ),
    ]


def real_dead_rate() -> str:
    """Dead verdicts on real round trips, for information, beside what a fixed 10 s gives."""
    appended_s = round_trips()
    # Up to where the first pair ends: what follows would be a real silence.
    trace = Trace(appended_s, np.arange(0, appended_s[:, -1].min(), 0.25))
    verdicts, gaps = len(watch(trace)), np.diff(appended_s, axis=1)
    return (
        f"real round trips of up to 46 s as delay, every pair alive: {verdicts} dead verdicts in "
        f"{trace.heartbeats:,} heartbeats ({verdicts / trace.heartbeats * 1e6:.0f} per 10^6; "
        f"a fixed 10 s gives {(gaps > 10).mean() * 1e6:.0f})"
    )


# What it costs.


def cost(steps: int = 20_000, workers: int = 20) -> list[str]:
    """Bytes per running step and microseconds per heartbeat of a step, batched per worker."""
    names = [f"{number:08x}-run" for number in range(steps)]
    keys = [(name, "s") for name in names]
    attempts = [_attempt(name, f"t{number % 20}") for number, name in enumerate(names)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    monitor = Monitor(0, settings=SETTINGS)
    monitor.canary(Canary(partition=0, monitor="m", number=0), EPOCH_MS)
    for key, attempt in zip(keys, attempts, strict=True):
        monitor.attempt(key, attempt)
    whole = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    beats = [
        Heartbeat(
            partition=0,
            worker="w",
            incarnation=0,
            held=tuple(Held(run_id=name, step="s", epoch=1) for name in names[w::workers]),
        )
        for w in range(workers)
    ]
    begun_s = time.perf_counter()
    for second in range(1, 11):
        for beat in beats:
            monitor.heartbeat(beat, EPOCH_MS + second * 1_000)
        _judge(monitor, EPOCH_MS + second * 1_000)
    each_us = (time.perf_counter() - begun_s) / (10 * steps) * 1e6
    columns = monitor.bytes_per_step
    return [
        f"{columns} B of state per running step; {whole / steps:.0f} B with index, heap and slack",
        f"{each_us:.2f} us per step and heartbeat, {workers} records of {steps // workers} steps",
    ]


def _print_comparison(columns: dict[str, dict[str, list[str]]]) -> None:
    heads = [f"{name} <={target}" for name in columns for target in (1_000, 300)]
    print("mean detection, s (mistakes per 10^6 in brackets), T = 1 s")
    print(f"{'':22}" + "".join(f"{head:>22}" for head in heads))
    for rival in RIVALS:
        cells = [cell for table in columns.values() for cell in table[rival.name]]
        print(f"{rival.name:22}" + "".join(f"{cell:>22}" for cell in cells))


def main(arguments: list[str] | None = None) -> int:
    """Print the tables; 1 if an acceptance number is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--duration-s", type=float, default=3_600)
    options = parser.parse_args(arguments)
    seeds = range(10, 10 + options.seeds)
    traces = [synthetic(seed=seed, duration_s=options.duration_s) for seed in seeds]
    columns = {"synthetic": compare_synthetic(traces)}
    checks: list[Callable[[], Check]] = [
        lambda: check_dead(traces),
        lambda: check_dead_at_floor(traces),
        lambda: check_broker_pauses(range(options.seeds), 900),
        check_crash,
    ]
    real = DATA.is_dir()
    if real:
        columns["real"] = compare_round_trips()
    _print_comparison(columns)
    done = [check() for check in checks] + (check_slow() if real else [])
    print()
    for check in done:
        verdict = "PASS" if check.passed else "FAIL"
        print(f"{verdict}  {check.name}: {check.measured} (wanted {check.wanted})")
    print()
    for line in [*cost(), *([real_dead_rate()] if real else [f"no real inputs at {DATA}"])]:
        print(line)
    return 0 if all(check.passed for check in done) else 1


if __name__ == "__main__":
    sys.exit(main())
