"""The project's own files, as git sees them."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("ops", "schemas", "storage", "streams", "src")


def project_files() -> list[Path]:
    """Every file that is, or would be, committed; links are left out."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def python_files(*folders: str) -> list[Path]:
    """Python files below these top-level folders."""
    return [
        path
        for path in project_files()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders
    ]


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines) of each function, without its decorators and docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                first = node.body[0]
                assert first.end_lineno is not None
                lines -= first.end_lineno - first.lineno + 1
            yield node.name, lines
