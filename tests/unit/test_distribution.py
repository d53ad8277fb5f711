"""What a user installs: a whole wheel, whose base needs only the libraries of the SDK."""

import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.unit.source_tree import ROOT, project_files

PACKAGES = ("ops", "schemas", "storage", "streams")
SERVICE_LIBRARIES = {"faust", "mode", "aiokafka", "rocksdict", "boto3", "structlog", "pydantic"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since setuptools leaves its work beside the sources."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    for path in project_files():
        inside = path.relative_to(ROOT)
        if inside.parts[0] in (*PACKAGES, "src"):
            (copy / inside).parent.mkdir(parents=True, exist_ok=True)
            (copy / inside).write_bytes(path.read_bytes())
    for package in PACKAGES:
        (copy / "src/dalsegno" / package).symlink_to(f"../../{package}")
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build, str(copy / "dist")],
        cwd=copy,
        check=True,
        capture_output=True,
    )
    return next((copy / "dist").glob("*.whl"))


def base_requirements() -> set[str]:
    """Names of the distributions that an install without extras brings, found transitively."""
    wanted, seen = ["dalsegno"], set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        needs = map(Requirement, distribution(name).requires or [])
        wanted += [n.name for n in needs if n.marker is None or n.marker.evaluate({"extra": ""})]
    return seen - {"dalsegno"}


def test_the_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"dalsegno/{path.relative_to(ROOT)}"
        for path in project_files()
        if path.relative_to(ROOT).parts[0] in PACKAGES
    }
    assert sorted(wanted - names) == []
    assert {"dalsegno/client.py", "dalsegno/py.typed"} <= names


def test_the_base_install_brings_no_service_library() -> None:
    assert base_requirements() & {"faust-streaming", "rocksdict", "boto3", "aiokafka"} == set()


def test_the_sdk_imports_with_the_base_install_alone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for name in base_requirements():
        for file in distribution(name).files or []:
            top = file.parts[0]
            source = Path(str(distribution(name).locate_file(top)))
            if top != ".." and not (tmp_path / top).exists():
                (tmp_path / top).symlink_to(source)
    probe = (
        "import sys; sys.path.append(sys.argv[1]); import dalsegno.client;"
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    # -I and -S: neither the environment's packages nor the working folder are on the path.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", probe, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) & SERVICE_LIBRARIES == set()
