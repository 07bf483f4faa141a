"""Processes that have other folders at a path than their neighbours have, as if they were on another machine."""

import os
import subprocess
import tempfile
from pathlib import Path

_MOUNT = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def _unshare() -> list[str]:
    # Without root in a user namespace of its own, where that is allowed.
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own, "--mount", "--propagation", "private"]


def within(folder: Path, at: Path) -> list[str]:
    """What to put before a command so that it finds `folder` at the path `at`; its process is the command's own."""
    return [*_unshare(), "sh", "-c", _MOUNT, "sh", str(folder), str(at)]


def why_not() -> str | None:
    """Why there can be no mount namespaces here; None if there can."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*within(Path(folder), Path(folder)), "true"]
        try:
            tried = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"mount namespaces cannot be made here: {error}"
    return None if tried.returncode == 0 else f"mount namespaces cannot be made here: {tried.stderr.strip()}"
