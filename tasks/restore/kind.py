"""The kind `restore`: restores a backup into a new place, on the member that runs it. It replaces nothing."""

import os
import shutil
import time
from pathlib import Path
from typing import Any, Final

from tasks.access import AccessRefused
from tasks.backup.archive import TargetExists
from tasks.backup.finding import TaskPlace, find_backups
from tasks.backup.manifest import Manifest
from tasks.backup.objects import RestoreWatch
from tasks.backup.over_source import refuse_over_source
from tasks.backup.restore import Restored, is_database, restore_found
from tasks.backup.sources.in_place import closed_to_others
from tasks.backup.sources.mariadb.connection import MARIADB_TOOLS, MariadbConnection
from tasks.backup.sources.postgres import POSTGRES_TOOLS
from tasks.backup.sources.source import RestoreParts, RestoreTarget
from tasks.errors import MissingSecret, Unretryable
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.needs import Needs, credential_groups
from tasks.places.place import BadDestination, Place, place_reach, resolved
from tasks.postgres.wal_position import parse_lsn
from tasks.reach import Reach
from tasks.restore.params import LATEST, RestoreParams, StoredPlace
from tasks.wal.restore import Moment, restore_server, start_hint

RESULT: Final = {
    "backup": "the URL of the backup that was restored",
    "created": "when the backup was begun: its content is not older",
    "target": "where it was restored to",
    "bytes": "the size of the content",
    "remarks": "what the backup lacks, and which checks could not be made; 20 at most",
    "archived": "of a server: the position up to which its log is archived",
    "start": "of a server: the command that starts it",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, with their descriptions for docs/reference."""


_EARLIER: Final = "; an earlier attempt at this run may have restored it just before it died"


class TargetTaken(Unretryable):
    """There is something at the target already."""


class RestoreStopped(Exception):
    """The attempt was asked to stop. Nothing is left of what it had restored."""


class Restore:
    """Restores a backup, completely or not at all."""

    Params = RestoreParams

    @staticmethod
    def local_data(params: RestoreParams) -> list[str]:
        """Return the params that name data on the member's own disk (`tasks.kind.Kind`)."""
        return [] if is_database(params.target) else ["target"]

    @staticmethod
    def reaches(params: RestoreParams, task: str) -> list[Reach]:
        """Return the paths and hosts that the params name (`tasks.kind.Kind`)."""
        del task  # the params name everything themselves
        copies = [(f"copies.{number}", place) for number, place in enumerate(params.copies)]
        stored = [("backups", params.backups), *copies, *([] if params.wal is None else [("wal", params.wal)])]
        spaces = [
            Reach(f"tablespaces.{name}", "destination", path, path, beside=True)
            for name, path in params.tablespaces.items()
        ]
        return [*(place_reach(field, place.url, place.options) for field, place in stored), _target(params), *spaces]

    @staticmethod
    def needs(params: RestoreParams, task: str) -> Needs:
        """Return the needs of an attempt (`tasks.kind.Kind`)."""
        places = [params.backups, *params.copies, *([] if params.wal is None else [params.wal])]
        own = [group for place in places for group in credential_groups(place.url, place.options)]
        certificates: tuple[Reach, ...] = ()
        tools = POSTGRES_TOOLS
        if is_database(params.target):
            server = params.server()
            certificates = server.certificate("target")
            own += server.own_credentials
            tools = MARIADB_TOOLS if isinstance(server, MariadbConnection) else tools
        return Needs(
            reaches=(*Restore.reaches(params, task), *certificates),
            tools=(tools,),
            own_credentials=tuple(dict.fromkeys(own)),
            gives_files=not is_database(params.target),
        )

    def run(self, ctx: Context[RestoreParams]) -> dict[str, Any]:
        """Restore one backup. Returns the fields of `RESULT`.

        Raises `AccessRefused`, `BadDestination`, `BadIdentity`, `BadTarget`, `Damaged`, `MissingSecret`, `NoBackup`,
        `NoIdentity`, `NotRestorable`, `PlaceFailed`, `RestoreStopped`, `TargetTaken`, and the errors of the source's
        module.
        """
        began_s = time.monotonic()
        with closed_to_others():
            try:
                done = _restored(ctx)
            except TargetExists as error:
                said = f"{error.found}, and a restore replaces nothing: {error.other}"
                raise TargetTaken(said + (_EARLIER if ctx.attempt > 1 else "")) from None
        return {**done, "target": ctx.params.target, "seconds": round(time.monotonic() - began_s, 3)}


def _target(params: RestoreParams) -> Reach:
    if is_database(params.target):
        return Reach("target", "destination", params.target, addresses=params.server().addresses())
    # The content is restored beside the target, and then renamed.
    return Reach("target", "destination", params.target, params.target, beside=True)


def _restored(ctx: Context[RestoreParams]) -> dict[str, Any]:
    """Restore the backup that the params choose. Returns the fields of `RESULT` that tell of it."""
    params = ctx.params
    chosen = ""

    def placing(aside: Path) -> None:
        # What is renamed keeps its inode: by this the next attempt knows a target that this one has completed. Raises
        # `Fenced` if there is a next attempt already.
        ctx.save_checkpoint({"placing": _inode(aside), "backup": chosen})

    target = RestoreTarget(
        name=params.target,
        password=None if params.password is None else ctx.secret(params.password),
        parts=RestoreParts(database=params.database, table=params.table),
        tablespaces=params.tablespaces,
        postgres_bin=ctx.access.postgres_bin,
        placing=placing,
    )
    keys = params.keys(ctx.secret)
    if is_database(params.target):
        params.server().check(ctx.access, "destination")
    else:
        _resolved(ctx, target)  # what is not allowed is said before anything is looked for
    found = find_backups(_places(ctx))
    for why in found.problems:
        ctx.log.warning("skipped: %s", why)

    def restore(backup: Manifest) -> Restored:
        nonlocal chosen
        chosen = backup.name
        if not is_database(params.target):
            _prepare(ctx, backup, target)
        ctx.log.info("restoring %s, made %s on %s, to %s", backup.name, backup.created, backup.node, params.target)
        return restore_found(found, backup.name, target, keys, _watch(ctx), ctx.log.warning)

    if params.wal is None:
        if (name := _placed_before(ctx)) is not None:
            made = found.chosen(name)
            ctx.log.info("%s was restored by an earlier attempt, which died before it could say so", made.url)
            return {**_about(made), "remarks": list(made.remarks[:20])}
        done = restore(found.chosen(None if params.backup == LATEST else params.backup))
        for remark in done.remarks[:100]:
            ctx.log.warning("%s", remark)
        return {**_about(done.manifest), "remarks": list(done.remarks[:20])}
    log_place = _place(ctx, params.wal)
    lsn = None if params.to_lsn is None else parse_lsn(params.to_lsn)
    moment = Moment(time=params.to_time, lsn=lsn, timeline=params.to_timeline)
    server = restore_server(
        found.complete,
        Path(params.target),
        moment,
        log_place.url,
        wal_options=log_place.options,
        keys=keys,
        restore=restore,
    )
    ctx.log.info("%s is at %s, and recovers to %s when it starts", server.manifest.url, server.target, moment)
    return {**_about(server.manifest), "archived": server.archived, "start": start_hint(params.target)}


def _prepare(ctx: Context[RestoreParams], backup: Manifest, to: RestoreTarget) -> None:
    """Raise `TargetTaken` if there is something at the target. Remove what earlier attempts have left beside it."""
    refuse_over_source(backup, to)
    for target in _resolved(ctx, to):
        if os.path.lexists(target):
            raise TargetExists(f"{target} exists on {ctx.node}", "name another target", None)
        if ctx.attempt > 1:
            for left in target.parent.glob(f".{target.name}.*.partial"):
                ctx.log.info("removing %s, which an earlier attempt has left", left)
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _resolved(ctx: Context[RestoreParams], to: RestoreTarget) -> list[Path]:
    """Return the paths that a restore makes. Raises `AccessRefused` for one that is not allowed."""
    return [FileGuard(ctx.access, "destination").resolve(path) for path in (to.name, *to.tablespaces.values())]


def _placed_before(ctx: Context[RestoreParams]) -> str | None:
    """Return the name of the backup that an earlier attempt at this run has restored completely; None: none has."""
    noted = ctx.checkpoint
    if not isinstance(noted, dict) or is_database(ctx.params.target):
        return None
    try:
        there = _inode(FileGuard(ctx.access, "destination").resolve(ctx.params.target))
    except FileNotFoundError:
        return None
    return str(noted["backup"]) if noted.get("placing") == there else None


def _inode(path: Path) -> list[int]:
    about = path.lstat()
    return [about.st_dev, about.st_ino]


def _place(ctx: Context[RestoreParams], stored: StoredPlace) -> TaskPlace:
    place = Place(stored.url, resolved(stored.options, ctx.secret), ctx.access)
    return TaskPlace(place.url, place.options)


def _places(ctx: Context[RestoreParams]) -> list[TaskPlace]:
    """Return the places that this member may read. Raises the first one's error if it may read none."""
    found: list[TaskPlace] = []
    refused: list[AccessRefused | BadDestination | MissingSecret] = []
    for stored in (ctx.params.backups, *ctx.params.copies):
        try:
            found.append(_place(ctx, stored))
        except (AccessRefused, BadDestination, MissingSecret) as error:
            ctx.log.warning("skipped: %s", error)
            refused.append(error)
    if not found:
        raise refused[0]
    return found


def _about(manifest: Manifest) -> dict[str, Any]:
    return {"backup": manifest.url, "created": manifest.created.isoformat(), "bytes": manifest.size_bytes}


def _watch(ctx: Context[RestoreParams]) -> RestoreWatch:
    """Show the progress of a restore, log what is done, and raise `RestoreStopped` once the attempt has to stop."""
    total: list[int | None] = [None]

    def expect(total_bytes: int | None) -> None:
        total[0] = total_bytes

    def advance(done_bytes: int) -> None:
        ctx.progress(done_bytes, total[0], "bytes")
        if ctx.cancelled:
            raise RestoreStopped("asked to stop")

    return RestoreWatch(advance, ctx.log.info, expect)
