"""Every alert fires in its case and keeps quiet while all is well: by Prometheus's own `promtool`,
where it is installed.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.unit.source_tree import ROOT

RULES: Final = ROOT / "ops" / "deploy" / "alerts.yml"
PANELS: Final = json.loads((RULES.parent / "grafana.json").read_text())["panels"]
PROMTOOL: Final = shutil.which("promtool")
MINUTES: Final = 100
_E1: Final = 'instance="e1"'
_P0: Final = 'partition="0"'
WELL: Final = {
    f'up{{job="dalsegno-engine",{_E1}}}': "1",
    f'dalsegno_partitions{{state="ready",{_E1}}}': "8",
    f'dalsegno_partitions{{state="restoring",{_E1}}}': "0",
    f'dalsegno_partitions{{state="stopped",{_E1}}}': "0",
    f"dalsegno_partitions_expected{{{_E1}}}": "8",
}
"""Series of an engine that does its work; so are those of `CASES`, at 0 or unchanged."""

GROWS: Final = "0x70 1+1x30"
CASES: Final[dict[str, dict[str, str]]] = {
    "EngineDown": {f'up{{job="dalsegno-engine",{_E1}}}': "0"},
    "EngineUnheard": {f"dalsegno_group_silence_seconds{{{_E1}}}": "31"},
    "PartitionStopped": {f'dalsegno_partitions{{state="stopped",{_E1}}}': "1"},
    "PartitionUnowned": {f'dalsegno_partitions{{state="ready",{_E1}}}': "7"},
    "PartitionNotReady": {f'dalsegno_partitions{{state="restoring",{_E1}}}': "1"},
    "BacklogOld": {f"dalsegno_backlog_age_seconds{{{_P0}}}": "31"},
    "CheckpointOld": {f"dalsegno_checkpoint_age_seconds{{{_P0}}}": "31"},
    "DeadLetters": {'dalsegno_dead_letters_total{reason="no_mac"}': "once"},
    "SigningKeyMissing": {f"dalsegno_signing_key_missing{{{_E1},{_P0}}}": "1"},
    "OutputOmitted": {
        'dalsegno_outputs_omitted_total{channel="escalations",reason="too_large"}': "once"
    },
    "Rebuilding": {'dalsegno_partition_rebuilds_total{cause="FencedError"}': "0x90 0+3x10"},
    "MonitorFailing": {"dalsegno_monitor_failures_total": GROWS},
    "MonitorDeaf": {f"dalsegno_monitor_canary_age_seconds{{{_P0}}}": "11"},
    "WaitsUnowned": {f"dalsegno_waits_unowned{{{_P0}}}": "1"},
    "WebhookUndelivered": {'dalsegno_webhook_oldest_seconds{webhook="w"}': "301"},
    "WebhookGivenUp": {'dalsegno_webhook_dropped_total{webhook="w",reason="given_up"}': "once"},
    "WebhookGone": {'dalsegno_webhook_gone{webhook="w"}': "1"},
    "WebhookFailing": {'dalsegno_webhook_posts_total{webhook="w",result="error"}': "once"},
    "ServiceFailing": {f"dalsegno_service_failures_total{{{_E1}}}": GROWS},
    "ReconcilerFailing": {"dalsegno_reconciler_failures_total": GROWS},
    "EventLoopSlow": {
        f'dalsegno_event_loop_lag_seconds_bucket{{le="1.0",{_E1}}}': "0",
        f'dalsegno_event_loop_lag_seconds_bucket{{le="2.5",{_E1}}}': GROWS,
        f'dalsegno_event_loop_lag_seconds_bucket{{le="+Inf",{_E1}}}': GROWS,
    },
    "NobodyStarts": {
        'dalsegno_steps_unstarted_total{flow="f"}': GROWS,
        'dalsegno_steps_dispatched_total{flow="f"}': GROWS,
    },
    "ArchiveOld": {f"dalsegno_archive_age_seconds{{{_P0}}}": "3601"},
    "ArchiveHoldsIntake": {f"dalsegno_archive_holds_intake{{{_P0}}}": "1"},
    "ErasureWaits": {f"dalsegno_erasure_age_seconds{{{_P0}}}": "3601"},
    "ErasureOverdue": {f"dalsegno_erasure_overdue_topics{{{_P0}}}": "1"},
    "ArchivedRunLost": {f"dalsegno_archive_runs_lost{{{_P0}}}": "1"},
    "ArchivedRunWaits": {f"dalsegno_archive_wanted_seconds{{{_P0}}}": "301"},
    "BlobsUnswept": {f"dalsegno_blob_sweep_age_seconds{{{_P0}}}": "21601"},
    "FaultPointOpen": {'dalsegno_fault_point_phase{fault_point="bureau",phase="open"}': "1"},
    "RecoveryFrozen": {f"dalsegno_recovery_frozen_seconds{{{_P0}}}": "3601"},
    "WarmNotStored": {f"dalsegno_warm_write_failures_total{{{_E1}}}": GROWS},
    "MemoryFull": {f"dalsegno_memory_full{{{_E1}}}": "1"},
    "ContextNearLimit": {
        'dalsegno_context_near_limit_total{limit="inline_bytes_max",flow="f",field="x"}': "once"
    },
    "WarmStalled": {f"dalsegno_warm_write_stalls_total{{{_E1}}}": "0x70 120+120x30"},
    "WarmThrownAway": {'dalsegno_warm_wiped_total{reason="damaged"}': "once"},
    "SnapshotsDamaged": {'dalsegno_snapshot_corrupt_total{fault="digest"}': "once"},
    "SnapshotsBroken": {f"dalsegno_snapshot_broken_total{{{_E1}}}": GROWS},
    "WarmLate": {
        f"dalsegno_warm_late_total{{{_E1}}}": "0x70 120+120x30",
        f"dalsegno_warm_missing_total{{{_E1}}}": "0x70 180+180x30",
    },
}
"""By alert: the series that differ. `once`: a first count shortly before the end."""


def _values(text: str) -> str:
    if text == "once":
        return "_x95 1x5"
    return f"{text}x100" if text.isdigit() else text


def _quiet(text: str) -> str:
    """The same series where nothing happens: gauges at 0, counters as they were long ago."""
    return "0x100" if text.isdigit() else "3x100"


def _test(series: dict[str, str], alert: str, firing: int | None) -> dict[str, object]:
    named = f'alertname="{alert}",' if alert else ""
    samples = [] if firing is None else [{"labels": "{}", "value": firing}]
    expression = f'count(ALERTS{{{named}alertstate="firing"}})'
    return {
        "interval": "1m",
        "input_series": [{"series": k, "values": v} for k, v in series.items()],
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{MINUTES}m", "exp_samples": samples}
        ],
    }


def _run(tests: list[dict[str, object]], folder: Path) -> None:
    assert PROMTOOL is not None
    file = folder / "tests.yml"
    document = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(document))
    command = [PROMTOOL, "test", "rules", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs Prometheus's promtool")


def test_every_alert_has_a_case() -> None:
    assert set(CASES) == set(re.findall(r"- alert: Dalsegno(\w+)", RULES.read_text()))


@needs_promtool
def test_every_alert_fires_in_its_case(tmp_path: Path) -> None:
    tests = [
        _test({key: _values(text) for key, text in (WELL | series).items()}, f"Dalsegno{name}", 1)
        for name, series in CASES.items()
    ]
    none = {key: f"{_values(text)[:-3]}50" for key, text in WELL.items()}
    tests.append(_test(none, "DalsegnoPartitionUnowned", 1))  # no engine tells anything
    _run(tests, tmp_path)


@needs_promtool
def test_no_alert_fires_while_all_is_well(tmp_path: Path) -> None:
    well = {key: _quiet(text) for series in CASES.values() for key, text in series.items()}
    well |= {key: _values(text) for key, text in WELL.items()}
    _run([_test(well, "", None)], tmp_path)


@needs_promtool
def test_prometheus_understands_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    asked = [target["expr"] for panel in PANELS for target in panel["targets"]]
    rules = [{"record": f"panel:{i}", "expr": each} for i, each in enumerate(asked)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert PROMTOOL is not None
    command = [PROMTOOL, "check", "rules", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
