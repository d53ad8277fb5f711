"""The data folder of `dalsegno dev`: what lasts between its runs."""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_KEY_BYTES = 32
_LOG_BYTES_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class DevFolder:
    """Paths below one folder, absolute."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> "DevFolder":
        """The folder, made if missing and kept out of version control."""
        folder = path.absolute()
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
        return cls(folder)

    @property
    def kafka(self) -> Path:
        """Data of the broker."""
        return self.path / "kafka"

    @property
    def s3(self) -> Path:
        """Data of the object store."""
        return self.path / "s3"

    def log(self, name: str) -> Path:
        """Log file of a child; one that grew too large is put aside first."""
        path = self.path / "logs" / f"{name}.log"
        if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
            path.replace(path.with_suffix(".log.1"))
        return path

    def pidfile(self, name: str) -> Path:
        """Where a child's guard writes its pid."""
        return self.path / f"{name}.pid"

    def mac_keys(self) -> str:
        """The `id:hex` list of this folder, made at the first call. Only this user may read it."""
        path = self.path / "mac-keys"
        with suppress(FileExistsError):
            fresh = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fresh, "w") as file:
                file.write(f"dev:{secrets.token_hex(_KEY_BYTES)}\n")
        return path.read_text().strip()
