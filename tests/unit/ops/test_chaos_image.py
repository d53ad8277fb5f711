"""The image of the chaos tests' driver holds every module that its programs need."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
LISTED = ("ops/deploy/Dockerfile", "tests/chaos/lab/Dockerfile")


def test_the_drivers_programs_find_all_that_they_import(tmp_path: Path) -> None:
    text = "\n".join((ROOT / name).read_text() for name in LISTED)
    copied = set(re.findall(r"^COPY ([\w/]+) \1$", text, re.MULTILINE))
    copied -= {"src", "schemas", "streams", "storage", "ops"}  # installed there as here
    assert {"tests/chaos", "examples"} <= copied
    for where in copied:
        shutil.copytree(ROOT / where, tmp_path / where, ignore=shutil.ignore_patterns("*.pyc"))
    programs = sorted(path.stem for path in (ROOT / "tests/chaos/inside").glob("*.py"))
    assert programs
    imports = "; ".join(f"import tests.chaos.inside.{name}" for name in programs)
    done = subprocess.run(
        [sys.executable, "-c", imports], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
