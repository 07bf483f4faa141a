"""Programs that other users can reach, in tests that run as root."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from testkit.cluster import Cluster
from testkit.users import first_shut

_NEEDED: Final = ("unshare", "mount")

_SCRIPT: Final = """
set -e
mount --make-rprivate /
aside=$(mktemp -d)
mount --bind "$1" "$aside"
mount -t tmpfs -o mode=755 tmpfs "$2"
mkdir -p "$1"
mount --move "$aside" "$1"
rmdir "$aside"
shift 2
exec "$@"
"""


def why_not() -> str:
    """Why attempts cannot run as other users in these tests; "" if they can."""
    if os.geteuid() != 0:
        return "needs root: a node becomes other users"
    if not all(map(shutil.which, _NEEDED)):
        return f"needs {', '.join(_NEEDED)}"
    return ""


def reachable() -> tuple[str, ...]:
    """Words before a command whose interpreter may be in a folder that only root may enter.

    The process sees the interpreter where others can reach it, in a mount namespace of its own. It keeps its pid.
    """
    home = Path(sys.base_prefix).resolve()
    shut = first_shut(home)
    return () if shut is None else ("unshare", "--mount", "sh", "-c", _SCRIPT, "sh", str(home), str(shut))


class ReachableCluster(Cluster):
    """Nodes whose interpreter other users can reach. Its folder should be an `open_folder`."""

    def command(self, name: str) -> list[str]:
        """The command line of a node's process."""
        return [*reachable(), *super().command(name)]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that others may enter: pytest's own are closed to them."""
    with tempfile.TemporaryDirectory(prefix="rota-test-") as made:
        Path(made).chmod(0o755)
        yield Path(made)
