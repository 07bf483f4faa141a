"""The kind `drill`: restores a backup into a scratch server or folder, compares it, and writes a proof beside it."""

import errno
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tasks.access import AccessRefused
from tasks.backup.archive import Damaged
from tasks.backup.chain import BrokenChain
from tasks.backup.encryption import BadIdentity, NoIdentity
from tasks.backup.finding import BackupAt, TaskPlace, lacking_file
from tasks.backup.manifest import NAME, Manifest, NoBackup, SourceType, Survey, begun, folder_name, survey
from tasks.backup.proofs import Proof, remove_surplus_proofs, write_proof
from tasks.backup.retention import name_of
from tasks.backup.sources.in_place import closed_to_others
from tasks.backup.sources.mariadb.server import MariadbFailed
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.backup.sources.sqlite import SqliteFailed
from tasks.backup.tree.read_tree import FolderFailed
from tasks.drill.base_backups import prove_base_backup
from tasks.drill.dumps import prove_dumps
from tasks.drill.files import prove_folder, prove_sqlite, prove_stream
from tasks.drill.mariadb import prove_mariadb
from tasks.drill.params import DrillParams
from tasks.drill.proving import DrillWork, Findings
from tasks.drill.watch import DrillBounds, DrillWatch, room_needed, scratch_room
from tasks.errors import Failed, MissingSecret, Unretryable
from tasks.kind import Context
from tasks.needs import Needs, credential_groups
from tasks.places.place import BadDestination, Place, place_reach, resolved
from tasks.reach import Reach
from tasks.wal.restore import NotRestorable

RESULT: Final = {
    "backup": "the URL of the backup that is proven",
    "created": "when that backup was begun",
    "proof": "the URL of the proof",
    "degraded": "folders of the backups that could not be used, and why; null: all could",
    "same_member": "whether the member that made the backup has proven it, too",
    "how": "what was done and compared; 20 sentences at most",
    "tables": "the number of tables that were read",
    "rows": "the number of rows in them",
    "checks": "the number of checks that held",
    "restored_bytes": "the size of the content that was restored",
    "seconds": "how long the drill took",
}
"""The fields of a run's result, with their descriptions for docs/reference."""

_PROVE: Final[Mapping[SourceType, Callable[[DrillWork, Findings], None]]] = {
    "postgres": prove_dumps,
    "postgres_physical": prove_base_backup,
    "mariadb": prove_mariadb,
    "sqlite": prove_sqlite,
    "folder": prove_folder,
    "stream": prove_stream,
}
"""How a backup is restored on trial, by the type of its source."""

_SPOILT: Final = (
    Damaged,
    BrokenChain,
    PostgresFailed,
    MariadbFailed,
    SqliteFailed,
    FolderFailed,
    NotRestorable,
    NoIdentity,
    BadIdentity,
)
"""Errors that say that a backup does not restore. All others, such as those of the network, say nothing about it."""

_SEALED: Final = "what differs is in the error of the run: the backup is encrypted"
_NO_ROOM: Final = "No space left on device"


class DrillFailed(Unretryable, Failed):
    """The backup does not restore, or differs from what was backed up. The message names what differs."""


class NotDrillable(Unretryable):
    """Backups of this type cannot be restored on trial."""


class Drill:
    """Restores a backup on trial, and writes a proof beside it: that it restores, or what is wrong with it."""

    Params = DrillParams

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now

    @staticmethod
    def reaches(params: DrillParams, task: str) -> list[Reach]:
        """Return the paths and hosts that the params of `task` name (`tasks.kind.Kind`)."""
        copies = [(f"copies.{number}", place) for number, place in enumerate(params.copies)]
        stored = [("backups", params.backups), *copies, *([] if params.wal is None else [("wal", params.wal)])]
        return [place_reach(field, place.url, place.options) for field, place in stored]

    @staticmethod
    def needs(params: DrillParams, task: str) -> Needs:
        """Return the needs of an attempt (`tasks.kind.Kind`)."""
        reaches = Drill.reaches(params, task)
        places = [params.backups, *params.copies, *([] if params.wal is None else [params.wal])]
        credentials = {group: None for each in places for group in credential_groups(each.url, each.options)}
        return Needs(
            reaches=tuple(reaches),
            tools=("tasks.drill.scratch_server:server_programs", "tasks.drill.mariadb:mariadb_server_programs"),
            network=any(reach.path is None for reach in reaches),
            own_credentials=tuple(credentials),
            server_user=True,
        )

    def run(self, ctx: Context[DrillParams]) -> dict[str, Any]:
        """Restore one backup on trial. Returns the fields of `RESULT`.

        Raises `AccessRefused`, `BadDestination`, `DrillBounds`, `DrillFailed`, `DrillStopped`, `Fenced`,
        `MissingSecret`, `NoBackup`, `NoTool`, `NotDrillable` and `ServerUnfit`.
        """
        with closed_to_others():
            return self._drill(ctx)

    def _drill(self, ctx: Context[DrillParams]) -> dict[str, Any]:
        began = self._now()
        drilled = _drilled(ctx)
        place, backup = drilled.place, drilled.backup
        findings = Findings(how=[f"not read: {why}" for why in drilled.unused])
        if isinstance(backup, Manifest):
            name, made_by = name_of(backup.url), backup.node
            self._prove(ctx, place, backup, findings)
        else:
            name, made_by = name_of(backup.rpartition("/manifest.json")[0]), None
            findings.problems.append(backup)
        # Who may read the destination may not read an encrypted backup, and learns nothing of it from its proofs.
        sealed = isinstance(backup, Manifest) and backup.encryption is not None
        told = Findings(problems=[_SEALED][: len(findings.problems)]) if sealed else findings
        proof = Proof(
            backup=name,
            result="failed" if findings.problems else "proven",
            why=tuple(line[:1000] for line in told.problems[:50]),
            how=tuple(line[:1000] for line in told.how[:50]),
            place=place.url,
            drill=ctx.task,
            run_id=ctx.run_id,
            token=ctx.token,
            node=ctx.node,
            same_member=made_by == ctx.node,
            began=began,
            finished=self._now(),
            tables=told.tables,
            rows=told.rows,
            checks=findings.checks,
            restored_bytes=backup.size_bytes if isinstance(backup, Manifest) else 0,
        )
        ctx.save_checkpoint({"proof": proof.name})  # raises `Fenced` if another attempt has taken the run over
        url = write_proof(place, proof)
        unused = [*drilled.unused, *(_tell_others(ctx, drilled, proof) if proof.result == "proven" else ())]
        self._tidy(ctx, place, drilled.found)
        if findings.problems:
            more = f" (and {len(findings.problems) - 3} more: {url})" if len(findings.problems) > 3 else ""
            raise DrillFailed(f"{place.url}/{name} is not proven: {'; '.join(findings.problems[:3])}{more}")
        return _result(proof, url, place, backup, findings) | {"degraded": "; ".join(unused)[:2000] or None}

    def _prove(self, ctx: Context[DrillParams], place: Place, backup: Manifest, findings: Findings) -> None:
        """Restore and compare a backup. Whatever says that it is spoilt becomes a problem in `findings`."""
        params = ctx.params
        if problem := misplaced(backup, name_of(place.url)):
            findings.problems.append(problem)
            return
        if backup.source_type not in _PROVE:
            raise NotDrillable(
                f"{backup.url} is of type {backup.source_type}, and drills restore only {', '.join(_PROVE)}: "
                "`rota backup verify` reads it"
            )
        if why := room_needed(backup.size_bytes, params.max_bytes, scratch_room(ctx.scratch)):
            raise DrillBounds(f"{backup.url}: {why}")
        ctx.log.info("restoring %s on trial", backup.url)
        with DrillWatch(ctx.scratch, params.max_s, params.max_bytes, lambda: ctx.cancelled) as watch:
            work = DrillWork(
                manifest=backup,
                options=place.options,
                keys=ctx.params.keys(ctx.secret),
                params=params,
                wal_options={} if params.wal is None else resolved(params.wal.options, ctx.secret),
                scratch=ctx.scratch,
                access=ctx.access,
                watch=watch,
                progress=lambda done_bytes: ctx.progress(done_bytes, backup.size_bytes, "bytes"),
            )
            try:
                _PROVE[backup.source_type](work, findings)
                if findings.problems:
                    watch.check()  # a server that had to end answers no check
            except _SPOILT as error:
                watch.check()  # the server was ended because time or room ran out, or the attempt is to stop
                if _NO_ROOM in str(error):
                    raise DrillBounds(f"the scratch folder is full: {error}") from error
                findings.problems.append(str(error))
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise DrillBounds(f"the scratch folder is full: {error}") from error
                raise
        for line in findings.how:
            ctx.log.info("%s", line)

    def _tidy(self, ctx: Context[DrillParams], place: Place, found: Survey) -> None:
        """Remove proofs that nobody needs any more. A store that refuses this keeps them, which is no failure."""
        there = {name_of(backup.url) for backup in found.complete}
        if found.unreadable:
            return  # which backups these are of is not known
        try:
            remove_surplus_proofs(place, there)
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception
            ctx.log.warning("old proofs at %s stay: %s: %s", place.url, type(error).__name__, error)


@dataclass(frozen=True)
class _Drilled:
    """The backup that a run drills, and the folder from which it is read."""

    place: Place
    found: Survey
    backup: Manifest | str
    """The backup; if its manifest cannot be read, the sentence that says so."""

    others: tuple[Place, ...]
    unused: tuple[str, ...]
    """A sentence for each folder that was to be read before this one, and could not be."""


def _drilled(ctx: Context[DrillParams]) -> _Drilled:
    """Choose the folder to read, and the backup in it. Raises the last folder's error if none can be read."""
    params, unused = ctx.params, list[str]()
    stored = [params.backups, *params.copies]
    places: list[Place] = []
    for number, each in enumerate(stored, 1):
        try:
            places.append(Place(each.url, resolved(each.options, ctx.secret), ctx.access))
        except (AccessRefused, BadDestination, MissingSecret) as error:
            if number == len(stored) and not places:
                raise
            unused.append(str(error))
    order = list(places)
    if params.read_from == "drawn":
        random.Random(f"{ctx.run_id} folder").shuffle(order)  # as in `pick`: each attempt draws the same
    for place in order:
        try:
            found = survey(place, [name for name in place.folders() if begun(name) is not None])
            backup = pick(found, place.url, params.pick, ctx.run_id)
            why = None
            if params.read_from == "first" and isinstance(backup, Manifest):
                why = lacking_file(BackupAt(backup, TaskPlace(place.url, place.options)))
        except Exception as error:
            if place is order[-1]:
                raise
            why = f"{place.url}: {type(error).__name__}: {error}"
        if why is None or place is order[-1]:
            break
        ctx.log.warning("not read: %s", why)
        unused.append(why)
    return _Drilled(place, found, backup, tuple(each for each in places if each is not place), tuple(unused))


def _tell_others(ctx: Context[DrillParams], drilled: _Drilled, proof: Proof) -> Iterator[str]:
    """Write a proof to the other folders that have the backup. Yields a sentence for each that fails.

    What is spoilt is so in the folder that was read, and stays told there only.
    """
    for place in drilled.others:
        try:
            if place.inside(proof.backup).read(NAME) is not None:
                write_proof(place, proof)
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception; the proof is at one place
            ctx.log.warning("%s was not told the proof: %s: %s", place.url, type(error).__name__, error)
            yield f"{place.url} was not told the proof: {type(error).__name__}: {error}"


def pick(found: Survey, url: str, how: str, run_id: str) -> Manifest | str:
    """Choose the backup to restore: the newest one, or one drawn by the run's id. Pure. Raises `NoBackup`.

    If the manifest of the newest one cannot be read, returns the sentence that says so.
    """
    newest = max(found.unreadable, key=_folder_in, default="")
    if how == "latest" and newest and all(name_of(backup.url) < _folder_in(newest) for backup in found.complete):
        return newest
    if not found.complete:
        raise NoBackup(f"{url} holds no backup: give DESTINATION/TASK of a task that makes backups")
    if how == "latest":
        return max(found.complete, key=lambda backup: name_of(backup.url))
    # The next attempt at the run, after a loss of its member, draws the same one.
    return random.Random(run_id).choice(sorted(found.complete, key=lambda backup: backup.url))


def _folder_in(sentence: str) -> str:
    """Return the name of the backup's folder in a sentence of `Survey.unreadable`."""
    return name_of(sentence.partition("/manifest.json")[0])


def misplaced(backup: Manifest, task: str) -> str:
    """Say why a manifest is not that of the folder in which it lies; "" if it is. Pure."""
    if backup.task != task:
        return f"{backup.url}: its manifest is of the task {backup.task}, not of {task}"
    if folder_name(backup.created, backup.token) != name_of(backup.url):
        return f"{backup.url}: its manifest is of the backup {folder_name(backup.created, backup.token)}"
    return ""


def _result(proof: Proof, url: str, place: Place, backup: Manifest | str, findings: Findings) -> dict[str, Any]:
    assert isinstance(backup, Manifest)
    return {
        "backup": f"{place.url}/{proof.backup}",
        "created": backup.created.isoformat(),
        "proof": url,
        "same_member": proof.same_member,
        "how": [line[:1000] for line in findings.how[:20]],
        "tables": findings.tables,
        "rows": findings.rows,
        "checks": proof.checks,
        "restored_bytes": proof.restored_bytes,
        "seconds": round(proof.seconds, 3),
    }
