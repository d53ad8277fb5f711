"""The public names, and what importing and installing them brings along."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires

from packaging.requirements import Requirement

import dalsegno.client

SERVICE_ONLY = {
    "aiokafka", "boto3", "botocore", "faust", "mode", "prometheus_client", "pydantic",
    "pydantic_settings", "rich", "rocksdict", "structlog", "typer", "zstandard", "uvloop",
}  # fmt: skip


def test_the_public_names_are_sorted_and_there() -> None:
    names = dalsegno.client.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(dalsegno.client, name) for name in names)


def test_importing_the_sdk_imports_no_library_of_the_service() -> None:
    program = "import sys, dalsegno.client; print(' '.join(m.split('.')[0] for m in sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert SERVICE_ONLY & set(result.stdout.split()) == set()


def test_the_base_install_needs_three_libraries() -> None:
    needed = [Requirement(text) for text in requires("dalsegno") or ()]
    base = {need.name for need in needed if need.marker is None or need.marker.evaluate()}
    assert base == {"confluent-kafka", "fastavro", "msgspec"}
