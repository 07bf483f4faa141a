"""The worker's side of its domain (`node.execution.domain`): what it gives up before the kind sees the params."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from node.execution.domain import allow_tools, found_tools, places_of
from node.execution.landlock import READ, Ruleset
from node.execution.linux import gain_no_rights, keep_capabilities
from node.execution.seccomp import enter_filter
from tasks.access import Access
from tasks.file_guard import learn_own
from tasks.needs import Needs
from tasks.reach import Reach

ANY_PATH: Final = (Reach("", "source", "", "/"), Reach("", "destination", "", "/"))
"""Stands for paths that are not known yet: any path may be read and written."""

_READING: Final = ("DAC_READ_SEARCH",)
_WRITING: Final = ("DAC_OVERRIDE", "FOWNER")


def capabilities(reaches: Iterable[Reach]) -> frozenset[str]:
    """The capabilities of root that it may take to read and write these paths, which may be another user's. Pure.

    >>> sorted(capabilities([Reach("source", "source", "/srv", "/srv"), Reach("to", "destination", "s3://b")]))
    ['DAC_READ_SEARCH']
    """
    given = tuple(reaches)
    uses = {reach.use for reach in given if reach.path is not None}
    # The folder of a PostgreSQL server's socket may be closed to all users but the server's.
    sockets = any("localhost" in reach.addresses for reach in given)
    reading = _READING if uses or sockets else ()
    return frozenset((*reading, *(_WRITING if "destination" in uses else ())))


def confine_early(needs: Needs, access: Access, *, becomes: bool) -> None:
    """Give up the rights that do not depend on where this process finds its files, for good. Raises `OSError`.

    `becomes`: the process is still to become another user, and calls `give_up_capabilities` after that.
    """
    if not needs.confined:
        return
    if any(reach.path is not None for reach in needs.reaches):
        # To recognize links to the node's own files later, when this process cannot see these files any more.
        learn_own(access.own)
    gain_no_rights()
    enter_filter(network=needs.network)
    if not becomes:
        give_up_capabilities(needs)


def give_up_capabilities(needs: Needs) -> None:
    """Keep only the capabilities of root that it may take to use the paths in `needs`. Raises `OSError`."""
    if needs.confined:
        keep_capabilities(capabilities(needs.reaches))


def confine(needs: Needs, access: Access, scratch: Path, ruleset: Ruleset | None, target: str) -> None:
    """Confine this process to `needs`. It has no other thread: a domain is that of one thread and its children.

    Call `confine_early` before. `ruleset` is the supervisor's; None: this kernel has no Landlock.
    `target` is the kind or the preparation, as `module:name`, whose package may be read. Raises
    `landlock.CannotConfine`, and what the functions raise that find tools.
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
        for place in places_of(target.partition(":")[0].partition(".")[0]):
            ruleset.allow(place, READ)
        ruleset.enter()
        ruleset.close()
