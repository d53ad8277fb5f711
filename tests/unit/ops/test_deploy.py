"""The compose file, the alerts and the image recipe agree with the code."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from examples.risk_control.rules import SERVICES
from tests.unit.source_tree import ROOT

from dalsegno.ops.embedded import KAFKA_VERSION
from dalsegno.streams.engine.metric import Kind
from dalsegno.streams.engine.metrics_catalogue import CATALOGUE

DEPLOY = ROOT / "ops" / "deploy"


@pytest.fixture(scope="module")
def compose() -> dict[str, dict[str, dict[str, object]]]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_three_brokers_keep_what_they_acknowledged(
    compose: dict[str, dict[str, dict[str, object]]],
) -> None:
    brokers = [each for name, each in compose["services"].items() if name.startswith("kafka")]
    assert len(brokers) == 3
    for broker in brokers:
        assert broker["image"] == f"apache/kafka:${{KAFKA_TAG:-{KAFKA_VERSION}}}"
        settings = broker["environment"]
        assert isinstance(settings, dict)
        assert settings["KAFKA_DEFAULT_REPLICATION_FACTOR"] == 3
        assert settings["KAFKA_MIN_INSYNC_REPLICAS"] == 2
        assert settings["KAFKA_UNCLEAN_LEADER_ELECTION_ENABLE"] == "false"
        assert settings["KAFKA_LOG_MESSAGE_TIMESTAMP_TYPE"] == "LogAppendTime"


def test_every_service_of_the_demo_is_there(
    compose: dict[str, dict[str, dict[str, object]]],
) -> None:
    assert set(SERVICES) <= set(compose["services"])
    environment = compose["services"]["worker1"]["environment"]
    assert isinstance(environment, dict)
    for name in SERVICES:
        assert f"RISK_CONTROL_{name.upper().replace('-', '_')}_URL" in environment


def test_nothing_fills_the_disk_or_the_memory_of_the_machine(
    compose: dict[str, dict[str, dict[str, object]]],
) -> None:
    for name, service in compose["services"].items():
        logging = service.get("logging")
        assert isinstance(logging, dict), name
        assert logging["options"].keys() == {"max-size", "max-file"}, name
        assert not name.startswith("engine") or service.get("mem_limit"), name


def test_no_port_is_open_to_other_machines(
    compose: dict[str, dict[str, dict[str, object]]],
) -> None:
    """The engines' HTTP asks nobody who he is."""
    for name, service in compose["services"].items():
        ports = service.get("ports", [])
        assert isinstance(ports, list)
        assert all(str(port).startswith("127.0.0.1:") for port in ports), name


def test_prometheus_scrapes_every_engine(
    compose: dict[str, dict[str, dict[str, object]]],
) -> None:
    scrape = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    targets = scrape["scrape_configs"][0]["static_configs"][0]["targets"]
    engines = [name for name in compose["services"] if name.startswith("engine")]
    assert targets == [f"{name}:8470" for name in engines]
    assert scrape["rule_files"] == ["alerts.yml"]


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def exported() -> set[str]:
    """Names of series: a histogram has none of its own name."""
    series: set[str] = set()
    for metric in CATALOGUE:
        ends = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
        series.update(metric.name + end for end in ends)
    return series


def test_the_dashboard_asks_for_series_and_labels_that_exist() -> None:
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    labels = {label for metric in CATALOGUE for label in metric.labels} | {"instance", "le"}
    assert len({panel["title"] for panel in panels}) == len(panels) > 10
    for target in (target for panel in panels for target in panel["targets"]):
        assert set(re.findall(r"dalsegno_\w+", target["expr"])) <= exported(), target
        by = {
            name
            for each in re.findall(r"by \(([^)]+)\)", target["expr"])
            for name in each.split(", ")
        }
        assert by <= labels, target
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= by, target


def test_alerts_ask_for_series_that_exist() -> None:
    """A histogram has no series of its own name: an alert on it would never fire."""
    series = exported()
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        asked = set(re.findall(r"dalsegno_\w+", rule["expr"]))
        assert asked <= series, rule["alert"]
        assert {"summary", "action"} <= set(rule["annotations"])


def test_alerts_on_counters_with_labels_fire_at_the_first_of_a_kind() -> None:
    """Such a series begins with its first count, and `increase` sees nothing in a first sample."""
    labelled = {m.name for m in CATALOGUE if m.kind is Kind.COUNTER and m.labels}
    pattern = r"increase\(((dalsegno_\w+)(?:\{[^}]*\})?)\[(\w+)\]\)\) > 0(?![.\d])"
    looked_at = 0
    for rule in rules():
        for series, name, window in re.findall(pattern, rule["expr"]):
            if name in labelled:
                looked_at += 1
                assert f"({series} unless {series} offset {window}) > 0" in rule["expr"], name
    assert looked_at >= 7


def test_every_alert_has_a_first_look_on_the_page() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| ([a-z ,]+) \| .+ \|$", page, re.MULTILINE)
    told = {name for row in rows for name in row.split(", ")}
    for rule in rules():
        words = re.findall(r"[A-Z][a-z]+", rule["alert"].removeprefix("Dalsegno"))
        assert " ".join(words).lower() in told, rule["alert"]


def test_the_image_holds_every_folder_that_the_wheel_is_built_from() -> None:
    copied = set(re.findall(r"^COPY (.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE))
    links = {path.name for path in Path(ROOT / "src" / "dalsegno").iterdir() if path.is_symlink()}
    assert links <= copied
