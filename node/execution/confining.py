"""Confines the worker to its domain (`node.execution.domain`): it gives up rights before the kind sees the params."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from node.execution.domain import INSTALLED_PACKAGES, allow_tools, found_tools, places_of
from node.execution.linux import gain_no_rights, keep_capabilities
from tasks.access import Access
from tasks.file_guard import learn_own
from tasks.landlock import READ, Ruleset
from tasks.needs import Needs
from tasks.reach import Reach
from tasks.seccomp import enter_filter

ANY_PATH: Final = (Reach("", "source", "", "/"), Reach("", "destination", "", "/"))
"""Stands for paths that are not known yet: any path may be read and written."""

_READING: Final = ("DAC_READ_SEARCH",)
_WRITING: Final = ("DAC_OVERRIDE", "FOWNER")
_SERVER: Final = ("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "KILL", "SETGID", "SETUID")
"""To run a server as `nobody`, to give it its files, to read and change them, and to end it."""


_GIVING: Final = ("CHOWN", "FSETID", "SETFCAP")
"""To give files their owners, the bits of their modes that go with an owner or a group, and file capabilities."""


def capabilities(reaches: Iterable[Reach], *, server_user: bool = False, gives_files: bool = False) -> frozenset[str]:
    """Return the capabilities that root needs to read and write these paths if they belong to another user. Pure.

    `server_user`: those that it needs to run a server as `nobody`, too (`Needs.server_user`). `gives_files`: those to
    give files to other users (`Needs.gives_files`).

    >>> sorted(capabilities([Reach("source", "source", "/srv", "/srv"), Reach("to", "destination", "s3://b")]))
    ['DAC_READ_SEARCH']
    """
    given = tuple(reaches)
    uses = {reach.use for reach in given if reach.path is not None}
    # Only the server's own user may be allowed to enter the folder of a PostgreSQL server's socket.
    sockets = any("localhost" in reach.addresses for reach in given)
    reading = _READING if uses or sockets else ()
    writing = _WRITING if "destination" in uses else ()
    return frozenset((*reading, *writing, *(_SERVER if server_user else ()), *(_GIVING if gives_files else ())))


def confine_early(needs: Needs, access: Access, *, becomes: bool) -> None:
    """Give up, irreversibly, the rights that need no ruleset: new privileges, system calls, capabilities.

    `becomes`: the process will become another user, and calls `give_up_capabilities` itself after that. Raises
    `OSError`.
    """
    if not needs.confined:
        return
    if any(reach.path is not None for reach in needs.reaches):
        # Note the node's own files, so that links to them are recognized later, when this process cannot see the files.
        learn_own(access.own)
    gain_no_rights()
    enter_filter(network=needs.network)
    if not becomes:
        give_up_capabilities(needs)


def give_up_capabilities(needs: Needs) -> None:
    """Keep only the capabilities of root that the paths in `needs` may require. Raises `OSError`."""
    if needs.confined:
        kept = capabilities(needs.reaches, server_user=needs.server_user, gives_files=needs.gives_files)
        keep_capabilities(kept)


def confine(needs: Needs, access: Access, scratch: Path, ruleset: Ruleset | None, target: str) -> None:
    """Confine this process to `needs`. It must have one thread, as a domain covers only one thread and its children.

    Call `confine_early` before. `ruleset` is from the supervisor; None: this kernel has no Landlock. `target` is the
    kind or the preparation, as `module:name`; its package may be read. Raises `landlock.CannotConfine`, and any error
    of the functions that find tools.
    """
    if not needs.confined:
        return
    tools = found_tools(needs.tools, os.environ, access)
    if not needs.everything:
        # Only this attempt can open temporary files there, and they are removed with the scratch folder.
        temporary = scratch / "tmp"
        temporary.mkdir(exist_ok=True)
        os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    if ruleset is not None:
        allow_tools(ruleset, tools)
        if (package := target.partition(":")[0].partition(".")[0]) not in INSTALLED_PACKAGES:
            for place in places_of(package):
                ruleset.allow(place, READ)
        ruleset.enter()
        ruleset.close()
