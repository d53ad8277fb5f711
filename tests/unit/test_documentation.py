"""Links in the documentation lead somewhere."""

import re
from pathlib import Path

import pytest
from tests.unit.source_tree import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Headings as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    missing = [p.name for p in (ROOT / "docs").glob("*.md") if f"({p.name})" not in index]
    assert [name for name in missing if name != "README.md"] == []
    decisions = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    records = (ROOT / "docs/adr").glob("0*.md")
    assert [p.name for p in records if f"({p.name})" not in decisions] == []
