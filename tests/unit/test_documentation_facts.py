"""What the documentation names is there: commands, options, settings, policy, samples."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.source_tree import ROOT
from typer.main import get_command

import dalsegno.client
from dalsegno.ops.cli import app
from dalsegno.schemas.control import Policy
from dalsegno.streams.engine.settings import EngineSettings

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
CODE = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("streams", "storage", "schemas", "ops")
    for path in (ROOT / folder).rglob("*.py")
)
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
BESIDE = {"decision": "what a signature begins with", "engine": "the picture"}
"""Lines that begin with `dalsegno` and are no command."""


def told(page: Path) -> Iterator[str]:
    """Command lines of a page: in the text between backticks, and in blocks."""
    text = page.read_text(encoding="utf-8")
    for _, block in FENCE.findall(text):
        for line in block.splitlines():
            if found := re.match(r"\s*(?:[A-Z_]+=\S* )*dalsegno ([a-z-][^#]*)", line):
                yield found[1]
    yield from re.findall(r"`dalsegno ([a-z-][^`]*)`", FENCE.sub("", text))


def fault(words: list[str]) -> str:
    """What is wrong with a command line; empty when its commands and options are there."""
    command: Any = get_command(app.build())
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0]
            options = [o for each in command.params for o in (*each.opts, *each.secondary_opts)]
            if name not in (*options, "--help"):
                return f"{command.name} has no {name}"
        elif (below := getattr(command, "commands", None)) and re.fullmatch(r"[a-z-]+", word):
            if word not in below:
                return f"{command.name} has no command {word}"
            command = below[word]
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_can_be_typed(page: Path) -> None:
    lines = [line for line in told(page) if line.split()[0] not in BESIDE]
    assert [(line, said) for line in lines if (said := fault(line.split()))] == []


def test_every_setting_of_an_engine_is_documented_with_its_default() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    fields = EngineSettings.model_fields
    assert [name for name in fields if f"DALSEGNO_{name.upper()}" not in text] == []
    rows = re.findall(
        r"^\| `DALSEGNO_(\w+)` \| `?([\w.:-]+)`? \|",
        (ROOT / "docs/operations.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    said = {name.lower(): default for name, default in rows if name.lower() in fields}
    have = {name: str(fields[name].default) for name in said}
    assert len(said) > 25
    assert {n: d for n, d in said.items() if d.lower() != have[n].lower()} == {}


def test_every_variable_that_is_named_is_read() -> None:
    prefixes = ("DALSEGNO_ARCHIVE_", "DALSEGNO_BLOB_", "DALSEGNO_SASL_", "DALSEGNO_SSL_")
    groups = (*prefixes, "DALSEGNO_REGISTRY_", "DALSEGNO_SECURITY_")
    unknown = []
    for page in PAGES:
        for name in re.findall(r"\bDALSEGNO_[A-Z_]*[A-Z]\b(?!_)", page.read_text(encoding="utf-8")):
            field = name.removeprefix("DALSEGNO_").lower()
            group = next((each for each in groups if name.startswith(each)), "DALSEGNO_")
            rest = name.removeprefix(group).lower()
            known = field in EngineSettings.model_fields or name in CODE
            known = known or (group != "DALSEGNO_" and re.search(rf"\b{rest}\b", CODE))
            if not known and not name.startswith("DALSEGNO_TEST_"):
                unknown.append((page.name, name))
    assert unknown == []


def test_the_policy_is_documented_whole() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    table = page.split("## The policy")[1].split("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", table))
    assert [name for name in Policy.__struct_fields__ if name not in named] == []


def test_samples_are_python_and_import_what_is_there() -> None:
    seen = 0
    for page in PAGES:
        for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
            if language != "python":
                continue
            for node in ast.walk(ast.parse(block, str(page))):
                if isinstance(node, ast.ImportFrom) and node.module == "dalsegno.client":
                    for name in node.names:
                        assert hasattr(dalsegno.client, name.name), f"{page.name}: {name.name}"
                        seen += 1
    assert seen > 10
