"""What no file of the project may say, and what no file may be called."""

import re
from pathlib import Path

import pytest
from tests.unit.source_tree import ROOT, project_files

BANNED_NAMES = {"utils", "helpers", "common", "manager", "base", "constants", "models"}

# Each with an example that it must find. Test data may hold any character.
BANNED_TEXT = {
    "an unfinished place": (r"\b(TODO|FIXME|XXX)\b", "# TODO: later"),
    "a ticket number": (r"(?<![\w&/#])#\d{1,4}\b|\b[Ii]ssue \d+\b", "see #12"),
    "a path of one machine": (
        r"(?<![\w}])(?<!\w\")/(work|root|home/\w+|Users)/\w",
        "in /work/main",
    ),
    "talk about how it was made": (
        r"\b(this session we|as discussed|as requested|the brief says|SPEC\.md)\b",
        "as requested",
    ),
    "a registry's host": (
        r"repo1?\.maven\.(apache\.)?org|pythonhosted\.org|registry\.npmjs\.org",
        "https://registry.npmjs.org/x",
    ),
}
PRODUCT = ("ops", "schemas", "src", "storage", "streams")
BINARY = {".png", ".jpg", ".bin", ".avro", ".gz", ".zst"}


def texts() -> list[tuple[Path, str]]:
    skipped = {Path(__file__), ROOT / "LICENSE"}
    files = [p for p in project_files() if p.suffix not in BINARY and p not in skipped]
    return [(path.relative_to(ROOT), path.read_text()) for path in files]


def matches(pattern: re.Pattern[str], files: list[tuple[Path, str]]) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()[:120]}"
        for path, text in files
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


@pytest.mark.parametrize("what", BANNED_TEXT)
def test_no_file_contains(what: str) -> None:
    pattern = re.compile(BANNED_TEXT[what][0])
    assert pattern.search(BANNED_TEXT[what][1])
    assert matches(pattern, texts()) == []


def test_no_file_is_decorated_with_emoji() -> None:
    pattern = re.compile("[\U0001f300-\U0001faff\u2705\u274c\u2728]")
    assert matches(pattern, [f for f in texts() if f[0].parts[0] != "tests"]) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    found = [path for path in project_files() if path.suffix == ".py" and path.stem in BANNED_NAMES]
    assert found == []


def test_every_package_folder_is_a_package() -> None:
    folders = {
        path.parent
        for path in project_files()
        if path.suffix == ".py"
        and path.relative_to(ROOT).parts[0] in ("ops", "schemas", "storage", "streams")
    }
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_nothing_waits_in_the_way_that_swallows_a_cancellation() -> None:
    """`asyncio.wait_for` of Python 3.11 passes over one that comes as its wait ends: a loop that is
    told to end then goes on, and whoever waits for its end waits for ever. `asyncio.timeout` does
    not.
    """
    product = [f for f in texts() if f[0].suffix == ".py" and f[0].parts[0] in PRODUCT]
    assert len(product) > 100
    assert matches(re.compile(r"\basyncio\.wait_for\("), product) == []
