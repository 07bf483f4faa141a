"""The kind `restore`: restores a backup into a new place, on the member that runs it. It replaces nothing."""

import os
import shutil
import time
from pathlib import Path
from typing import Any, Final

from tasks.backup.archive import TargetExists
from tasks.backup.manifest import Manifest, survey_url
from tasks.backup.objects import needed_by_restore
from tasks.backup.restore import restore_manifest
from tasks.backup.sources.in_place import closed_to_others
from tasks.backup.sources.mariadb.connection import MARIADB_TOOLS, MariadbConnection
from tasks.backup.sources.postgres import POSTGRES_TOOLS
from tasks.backup.sources.source import RestoreParts
from tasks.errors import Unretryable
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.needs import Needs, credential_groups
from tasks.places.place import Place, place_reach, resolved
from tasks.postgres.wal_position import parse_lsn
from tasks.reach import Reach
from tasks.restore.params import LATEST, RestoreParams, StoredPlace, is_database
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


_OTHER: Final = "name another target"


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
        stored = [("backups", params.backups)] + ([] if params.wal is None else [("wal", params.wal)])
        spaces = [
            Reach(f"tablespaces.{name}", "destination", path, path, beside=True)
            for name, path in params.tablespaces.items()
        ]
        return [*(place_reach(field, place.url, place.options) for field, place in stored), _target(params), *spaces]

    @staticmethod
    def needs(params: RestoreParams, task: str) -> Needs:
        """Return the needs of an attempt (`tasks.kind.Kind`)."""
        places = [params.backups] if params.wal is None else [params.backups, params.wal]
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
        `NoIdentity`, `NotRestorable`, `RestoreStopped`, `TargetTaken`, and the errors of the source's module.
        """
        began_s = time.monotonic()
        params = ctx.params
        with closed_to_others():
            if not is_database(params.target):
                for path in (params.target, *params.tablespaces.values()):
                    _prepare(ctx, FileGuard(ctx.access, "destination").resolve(path))
            else:
                params.server().check(ctx.access, "destination")
            if ctx.access.postgres_bin is not None:
                # This process is the attempt's own. Restoring looks for the programs as the command line does.
                os.environ["ROTA_POSTGRES_BIN"] = ctx.access.postgres_bin
            try:
                done = _restore(ctx) if params.wal is None else _restore_to_moment(ctx, params.wal)
            except TargetExists:
                raise TargetTaken(f"{params.target} is not empty, and a restore replaces nothing: {_OTHER}") from None
        return {**done, "target": params.target, "seconds": round(time.monotonic() - began_s, 3)}


def _target(params: RestoreParams) -> Reach:
    if is_database(params.target):
        return Reach("target", "destination", params.target, addresses=params.server().addresses())
    # The content is restored beside the target, and then renamed.
    return Reach("target", "destination", params.target, params.target, beside=True)


def _prepare(ctx: Context[RestoreParams], target: Path) -> None:
    """Raise `TargetTaken` if there is something at the target. Remove what earlier attempts have left beside it."""
    if os.path.lexists(target):
        more = "; an earlier attempt at this run may have restored it just before it died" if ctx.attempt > 1 else ""
        raise TargetTaken(f"{target} exists on {ctx.node}, and a restore replaces nothing: {_OTHER}{more}")
    if ctx.attempt > 1:
        for left in target.parent.glob(f".{target.name}.*.partial"):
            ctx.log.info("removing %s, which an earlier attempt has left", left)
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def _place(ctx: Context[RestoreParams], stored: StoredPlace) -> Place:
    return Place(stored.url, resolved(stored.options, ctx.secret), ctx.access)


def _restore(ctx: Context[RestoreParams]) -> dict[str, Any]:
    params, place = ctx.params, _place(ctx, ctx.params.backups)
    url = place.url if params.backup == LATEST else f"{place.url}/{params.backup}"
    found = survey_url(url, place.options)
    for why in found.unreadable:
        ctx.log.warning("skipped: %s", why)
    manifest = found.newest(url)
    ctx.log.info("restoring %s, made %s on %s, to %s", manifest.url, manifest.created, manifest.node, params.target)
    password = None if params.password is None else ctx.secret(params.password)
    total_bytes = sum(each.size_bytes for each in needed_by_restore(manifest, place.options))
    restored = restore_manifest(
        manifest,
        params.target,
        options=place.options,
        password=password,
        progress=lambda done: _step(ctx, done, total_bytes),
        keys=params.keys(ctx.secret),
        parts=RestoreParts(database=params.database, table=params.table),
        tablespaces=params.tablespaces,
    )
    for remark in restored.remarks[:100]:
        ctx.log.warning("%s", remark)
    return {**_about(manifest), "remarks": list(restored.remarks[:20])}


def _restore_to_moment(ctx: Context[RestoreParams], wal: StoredPlace) -> dict[str, Any]:
    params, place, log_place = ctx.params, _place(ctx, ctx.params.backups), _place(ctx, wal)
    found = survey_url(place.url, place.options)
    for why in found.unreadable:
        ctx.log.warning("skipped: %s", why)
    lsn = None if params.to_lsn is None else parse_lsn(params.to_lsn)
    moment = Moment(time=params.to_time, lsn=lsn, timeline=params.to_timeline)
    done = restore_server(
        found.complete,
        Path(params.target),
        moment,
        log_place.url,
        options=place.options,
        wal_options=log_place.options,
        keys=params.keys(ctx.secret),
        progress=lambda done_bytes: _step(ctx, done_bytes, None),
        tablespaces=params.tablespaces,
    )
    ctx.log.info("%s is at %s, and recovers to %s when it starts", done.manifest.url, done.target, moment)
    return {**_about(done.manifest), "archived": done.archived, "start": start_hint(params.target)}


def _about(manifest: Manifest) -> dict[str, Any]:
    return {"backup": manifest.url, "created": manifest.created.isoformat(), "bytes": manifest.size_bytes}


def _step(ctx: Context[RestoreParams], done_bytes: int, total_bytes: int | None) -> None:
    ctx.progress(done_bytes, total_bytes, "bytes")
    if ctx.cancelled:
        raise RestoreStopped("asked to stop")
