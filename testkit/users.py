"""Programs as an ordinary user, in tests that run as root."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NOBODY: Final = 65534
_ROOT: Final = Path(__file__).parents[1]
_NEEDED: Final = ("setpriv", "unshare", "mount")

_SCRIPT: Final = """
set -e
mount --make-rprivate /
while [ "$1" != -- ]; do  # FOLDER SHUT: in this mount namespace FOLDER is reached though its parent SHUT is closed
    aside=$(mktemp -d)
    mount --bind "$1" "$aside"
    mount -t tmpfs -o mode=755 tmpfs "$2"
    mkdir -p "$1"
    mount --move "$aside" "$1"
    rmdir "$aside"
    shift 2
done
shift
if [ "$1" = hidden ]; then mount -t proc -o hidepid=2 proc /proc; fi
shift
exec setpriv --reuid=NOBODY --regid=NOBODY --clear-groups --bounding-set=-all "$@"
""".replace("NOBODY", str(NOBODY))


def can_be_nobody() -> bool:
    """Whether this process may start programs as an ordinary user (`as_nobody`)."""
    return os.geteuid() == 0 and all(map(shutil.which, _NEEDED)) and first_shut(_ROOT) is None


def as_nobody(*, hidepid: bool = False) -> tuple[str, ...]:
    """Words before a command: it runs as a user without any capability, with the pid that it would have without them.

    The interpreter may be in a folder that only root may enter: this process alone sees it elsewhere. `hidepid`: its
    /proc does not show processes that it may not read.
    """
    home = Path(sys.base_prefix)
    shut = first_shut(home)
    moved = () if shut is None else (str(home), str(shut))
    return ("unshare", "--mount", "sh", "-c", _SCRIPT, "sh", *moved, "--", "hidden" if hidepid else "shown")


def first_shut(folder: Path) -> Path | None:
    """The first folder on the way to `folder` that other users may not enter; None: they may enter all."""
    way = [*reversed(folder.resolve().parents), folder.resolve()]
    return next((each for each in way if not each.stat().st_mode & 0o001), None)


@contextmanager
def folder_of(uid: int) -> Iterator[Path]:
    """A temporary folder of that user. Those of pytest are below a folder that only this user may enter."""
    with tempfile.TemporaryDirectory(prefix="rota-test-") as made:
        os.chown(made, uid, uid)
        yield Path(made)
