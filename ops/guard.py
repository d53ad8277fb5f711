"""Child processes that cannot outlive us, however we die."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_ENDS_S_MAX = 10.0
# The watcher keeps the read end of our stdin pipe: when this process dies, even by kill -9, the
# pipe closes and the child is ended. A parent-death signal would fire when the spawning *thread*
# ends, and exists on Linux only. The child gets 6 s between TERM and KILL.
_GUARD = """
f=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- & p=$!
echo $p >"$f.new" && mv "$f.new" "$f"
(
  read -r _ <&3
  kill $p
  for i in 1 2 3 4 5 6; do sleep 1; kill -0 $p || exit; done
  kill -9 $p
) >/dev/null 2>&1 & w=$!
exec 3<&-
wait $p; rc=$?
kill $w 2>/dev/null
exit $rc
"""


def spawn_guarded(
    command: Sequence[str],
    pidfile: Path,
    output: IO[bytes] | int,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `command` so that it gets TERM, then KILL, once this process is gone.

    The child's own pid appears in `pidfile`; the returned process is its guard, which ends with
    the child's exit code. Keep the returned object: closing its `stdin` ends the child too. A
    fork of this process that lives on keeps the pipe, and so the child, alive.
    """
    pidfile.unlink(missing_ok=True)
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", str(pidfile), *command],
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=output,
        start_new_session=True,
        env=env,
    )


def command_of(pid: int) -> str:
    """The command line of a live process, or the empty text."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return ""
    except ProcessLookupError:
        return ""
    found = subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
    )
    return found.stdout.decode("utf-8", "replace")


def pid_in(pidfile: Path) -> int | None:
    """The pid that a guard wrote, whether that process lives or not."""
    with suppress(OSError, ValueError):
        return int(pidfile.read_text())
    return None


def await_predecessor(pidfile: Path, words: str) -> int | None:
    """Wait until the child of an owner that was killed has ended; its pid if it lives on.

    Pids are used again, so only a process whose command line holds `words` is that child. A guard
    ends it within 6 s.
    """
    pid = pid_in(pidfile)
    limit = time.monotonic() + _ENDS_S_MAX
    while pid is not None and words in command_of(pid):
        if time.monotonic() > limit:
            return pid
        time.sleep(0.05)
    return None
