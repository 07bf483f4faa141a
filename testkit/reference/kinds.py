"""docs/reference/kinds.md: the params, results and errors of the kinds that Rota brings."""

import re
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Any, Final

from pydantic import BaseModel

from spark_tasks.contracts import sink as sink_contract
from spark_tasks.contracts import source as source_contract
from spark_tasks.contracts.incremental import Incremental
from spark_tasks.delta import merge as delta_merge
from spark_tasks.delta import params as delta_params
from spark_tasks.delta import sink as delta_sink
from spark_tasks.etl import errors as etl_errors
from spark_tasks.etl import kind as etl
from spark_tasks.etl import transform
from spark_tasks.files import faults, listing, ready
from spark_tasks.files import params as file_params
from spark_tasks.http import client as http_client
from spark_tasks.http import params as http_params
from spark_tasks.ingest import errors as ingest_errors
from spark_tasks.ingest import expectations
from spark_tasks.ingest import kind as ingest
from spark_tasks.maintain import errors as maintain_errors
from spark_tasks.maintain import kind as maintain
from spark_tasks.postgres import params as postgres_params
from spark_tasks.postgres import session
from spark_tasks.spark import java, sample
from spark_tasks.sqlite import params as sqlite_params
from spark_tasks.sqlite import source as sqlite_source
from spark_tasks.storage import errors as storage_errors
from spark_tasks.table import delta, ledger
from spark_tasks.webhook import params as webhook_params
from tasks import errors, source_identity
from tasks.access import AccessRefused
from tasks.backup import archive, encryption, keep
from tasks.backup import content as backup_content
from tasks.backup import kind as backup
from tasks.backup import manifest as backup_manifest
from tasks.backup import params as backup_params
from tasks.backup import restore as backup_restore
from tasks.backup.sources import (
    base_backup,
    data_folder,
    folder,
    physical,
    postgres,
    postgres_readable,
    postgres_tools,
    source,
    sqlite,
    stream,
)
from tasks.backup.sources.mariadb import server as mariadb_server
from tasks.backup.sources.mariadb import source as mariadb
from tasks.backup.tree import read_tree
from tasks.command import kind as command
from tasks.drill import kind as drill
from tasks.drill import params as drill_params
from tasks.drill import scratch_server as drill_server
from tasks.drill import watch as drill_watch
from tasks.places import place
from tasks.postgres import connection, replication
from tasks.prune import kind as prune
from tasks.restore import kind as restore
from tasks.restore import params as restore_params
from tasks.secret import SecretEnv, SecretFile
from tasks.wal import archive as wal_archive
from tasks.wal import kind as wal
from tasks.wal import plan as wal_plan
from tasks.wal import receiver as wal_receiver
from tasks.wal import restore as wal_restore
from tasks.wal import server as wal_server
from tasks.wal import writer as wal_writer
from testkit.reference.schema import rows_of, table

PATH: Final = "docs/reference/kinds.md"

_HEADINGS: Final = {
    "KeepRules": "Rules of keep",
    "EncryptionParams": "Encryption of backups",
    "CopyParams": "Further destination",
    "FolderSource": "Source folder",
    "SqliteSource": "Source sqlite",
    "PostgresSource": "Source postgres",
    "PostgresConnection": "Server of wal",
    "PhysicalSource": "Source postgres_physical",
    "MariadbSource": "Source mariadb",
    "StreamSource": "Source stream",
    "StoredPlace": "Stored place of restore",
    "DrillCheck": "Check of drill",
    "PostgresRows": "Rows of postgres",
    "DecimalType": "Decimal type",
    "SqliteRows": "Rows of sqlite",
    "DeltaRows": "Rows of delta",
    "FileRows": "Rows of files",
    "HttpRows": "Rows of http",
    "HttpPages": "Pages of http",
    "Incremental": "Incremental",
    "Transform": "Transform",
    "PostgresTable": "Table in postgres",
    "SqliteTable": "Table in sqlite",
    "Webhook": "Webhook",
    "DeltaTarget": "Delta table",
    "ParquetTarget": "Parquet files",
    "Ready": "Complete files",
    "Expectation": "Expectation",
}
_BACKUP_PARTS: Final[tuple[type[BaseModel], ...]] = (
    keep.KeepRules,
    encryption.EncryptionParams,
    backup_params.CopyParams,
    folder.FolderSource,
    sqlite.SqliteSource,
    postgres.PostgresSource,
    physical.PhysicalSource,
    mariadb.MariadbSource,
    stream.StreamSource,
)
_ETL_PARTS: Final[tuple[type[BaseModel], ...]] = (
    postgres_params.PostgresRows,
    postgres_params.DecimalType,
    sqlite_params.SqliteRows,
    delta_params.DeltaRows,
    file_params.FileRows,
    http_params.HttpRows,
    http_params.HttpPages,
    Incremental,
    transform.Transform,
    postgres_params.PostgresTable,
    sqlite_params.SqliteTable,
    webhook_params.Webhook,
    delta_params.DeltaTarget,
    delta_params.ParquetTarget,
)

_INGEST_PARTS: Final[tuple[type[BaseModel], ...]] = (expectations.Expectation, ready.Ready)

_COMMAND_ERRORS: Final = (command.CommandFailed, errors.MissingSecret)
_BACKUP_ERRORS: Final = (
    AccessRefused,
    source.NoBackupSource,
    source_identity.OtherSource,
    place.BadDestination,
    place.NoBucket,
    place.NoObjectLock,
    read_tree.FolderFailed,
    sqlite.SqliteFailed,
    postgres_tools.NoTool,
    postgres_tools.PostgresFailed,
    mariadb_server.NoMariadbProgram,
    mariadb_server.MariadbFailed,
    stream.StreamFailed,
    postgres_readable.NotReadable,
    physical.ServerTooOld,
    base_backup.BadBaseBackup,
    replication.PostgresAway,
    replication.PostgresRefused,
    replication.PostgresError,
    replication.NoDriver,
    backup_content.Vanished,
    backup_content.BackupStopped,
    encryption.BadIdentity,
    backup_content.BadSetting,
    errors.MissingSecret,
    errors.Fenced,
)
_RESTORE_ERRORS: Final = (
    AccessRefused,
    restore.TargetTaken,
    backup_restore.BadTarget,
    backup_manifest.NoBackup,
    wal_restore.NotRestorable,
    archive.Damaged,
    place.BadDestination,
    postgres_tools.NoTool,
    postgres_tools.PostgresFailed,
    mariadb_server.NoMariadbProgram,
    mariadb_server.MariadbFailed,
    data_folder.NoTablespacePath,
    data_folder.NoRoomToRestore,
    restore.RestoreStopped,
    errors.MissingSecret,
)
_DRILL_ERRORS: Final = (
    AccessRefused,
    drill.DrillFailed,
    drill.NotDrillable,
    drill_watch.DrillBounds,
    drill_server.ServerUnfit,
    backup_manifest.NoBackup,
    place.BadDestination,
    postgres_tools.NoTool,
    drill_watch.DrillStopped,
    errors.MissingSecret,
    errors.Fenced,
)
_PRUNE_ERRORS: Final = (AccessRefused, place.BadDestination, archive.Damaged, errors.MissingSecret, errors.Fenced)
_WAL_ERRORS: Final = (
    AccessRefused,
    wal.LogLost,
    wal.OtherSystem,
    wal.UnboundedSlot,
    wal_plan.OtherHistory,
    wal_plan.ServerBehind,
    wal_server.WalServerAway,
    wal_server.WalServerRefused,
    wal_writer.ArchiveUnfit,
    wal_archive.ArchiveAway,
    wal_writer.ClaimedElsewhere,
    wal_receiver.ArchiveHangs,
    archive.Damaged,
    place.BadDestination,
    place.NoBucket,
    place.NoObjectLock,
    errors.MissingSecret,
    errors.Fenced,
)
_INGEST_ERRORS: Final = (
    AccessRefused,
    listing.NoSourceFiles,
    listing.SourceChanged,
    source_identity.OtherSource,
    ingest_errors.FilesRefused,
    ingest_errors.FilesUnfit,
    faults.MalformedRows,
    faults.SchemaDrift,
    faults.ReadFailed,
    ingest_errors.IngestFailed,
    ingest_errors.CountsDiffer,
    expectations.ExpectationFailed,
    ingest_errors.TableReplaced,
    delta.TableUnfit,
    place.BadDestination,
    place.NoBucket,
    storage_errors.NoPermission,
    storage_errors.StoreAway,
    ledger.LedgerDamaged,
    java.NoJava,
    errors.MissingSecret,
    ingest_errors.IngestStopped,
    errors.Fenced,
)
_ETL_ERRORS: Final = (
    AccessRefused,
    session.ServerAway,
    session.ServerRefused,
    session.QueryFailed,
    session.QueryUnfit,
    sqlite_source.SourceBusy,
    http_client.ApiAway,
    http_client.ApiReadStopped,
    place.BadDestination,
    place.NoBucket,
    storage_errors.NoPermission,
    storage_errors.StoreAway,
    source_contract.SourceUnfit,
    source_contract.SourceReplaced,
    listing.NoSourceFiles,
    listing.SourceChanged,
    faults.MalformedRows,
    faults.SchemaDrift,
    faults.ReadFailed,
    transform.TransformUnfit,
    etl_errors.BatchFailed,
    etl_errors.BatchAway,
    etl_errors.BatchUnfit,
    sink_contract.SinkUnfit,
    sink_contract.SinkAway,
    etl_errors.SinkReplaced,
    etl_errors.CursorUnfit,
    delta_merge.RowsDiffer,
    delta_sink.TableBusy,
    ledger.LedgerDamaged,
    java.NoJava,
    etl_errors.EtlStopped,
    errors.MissingSecret,
    errors.Fenced,
)

_RESULTS: Final = {
    ("ingest", "preview"): sample.RESULT | {"files": "the files that were read"},
    ("etl", "preview"): sample.RESULT,
    ("etl", "show"): etl.SHOWN,
    ("etl", "reset"): {field: about for field, about in etl.SHOWN.items() if field != "next"},
}

_MAINTAIN_ERRORS: Final = (
    AccessRefused,
    maintain_errors.NoTable,
    maintain_errors.TableInUse,
    maintain_errors.RewriteDiffers,
    maintain_errors.FileUnreadable,
    maintain_errors.NoRoom,
    maintain_errors.KeepTooShort,
    delta.TableUnfit,
    ledger.LedgerDamaged,
    place.BadDestination,
    place.NoBucket,
    storage_errors.NoPermission,
    storage_errors.StoreAway,
    errors.MissingSecret,
    maintain_errors.MaintainStopped,
    errors.Fenced,
)

_INTRODUCTION: Final = """\
# Kinds of task

<!-- Made by `python -m testkit.reference` from the kinds' classes. Edit the descriptions there. -->

What `params` hold for each kind that comes with Rota, what a run's `result` holds, and how a run's `error` begins.
`rota kinds` shows what the nodes of a cluster offer. A kind of your own is a class with an entry point: see
[examples/rota-hello](../../examples/rota-hello).

An error with `no` under "retried" fails the run at once. One with `until it answers` is retried after 5 s, then after
twice as long each time, at most 15 minutes, for a day unless `retry.away_s` says otherwise. The others are retried as
the task's [retry policy](spec.md#retry) says. A param that is not in these tables is refused.
"""


def render() -> str:
    """The page."""
    return "\n".join(
        [
            _INTRODUCTION,
            _kind("command", command.Command, command.RESULT, _COMMAND_ERRORS),
            _kind("backup", backup.Backup, backup.RESULT, _BACKUP_ERRORS, _BACKUP_PARTS),
            _kind("backup_prune", prune.BackupPrune, prune.RESULT, _PRUNE_ERRORS),
            _kind("wal", wal.Wal, wal.RESULT, _WAL_ERRORS, (connection.PostgresConnection,)),
            _kind("restore", restore.Restore, restore.RESULT, _RESTORE_ERRORS, (restore_params.StoredPlace,)),
            _kind("drill", drill.Drill, drill.RESULT, _DRILL_ERRORS, (drill_params.DrillCheck,)),
            _kind("ingest", ingest.Ingest, ingest.RESULT, _INGEST_ERRORS, _INGEST_PARTS),
            _actions("ingest", ingest.Ingest),
            _kind("etl", etl.Etl, etl.RESULT, _ETL_ERRORS, _ETL_PARTS),
            _actions("etl", etl.Etl),
            _kind("maintain", maintain.Maintain, maintain.RESULT, _MAINTAIN_ERRORS),
            _secrets(),
        ]
    )


def _kind(
    name: str,
    kind: type[Any],
    result: Mapping[str, str],
    raised: Sequence[type[Exception]],
    models: Sequence[type[BaseModel]] = (),
) -> str:
    parts = [f"## {name}\n\n{_doc(kind)}\n", "### Params of " + name + "\n", _doc(kind.Params) + "\n"]
    parts += [table(kind.Params, _HEADINGS)]
    parts += [f"#### {_HEADINGS[one.__name__]}\n\n{_doc(one)}\n\n{table(one, _HEADINGS)}" for one in models]
    parts += [f"### Result of {name}\n"]
    parts += [rows_of(("field", "meaning"), [(f"`{field}`", about) for field, about in result.items()])]
    parts += [f"### Errors of {name}\n"]
    parts += [rows_of(("error", "retried", "meaning"), [_error(one) for one in raised])]
    return "\n".join(parts)


def _actions(name: str, kind: type[Any]) -> str:
    """What a client may ask for beside the task's work: each action with its args and its result."""
    parts = [
        f"### Actions of {name}\n\n`POST /v1/tasks/NAME/actions/ACTION` starts a run of an action. It runs beside the "
        "task's runs, and is not retried.\n"
    ]
    for action, args in kind.actions.items():
        about, _, _ = _doc(getattr(kind, action)).partition("\n\n")
        parts.append(f"#### {action} of {name}\n\n{about}\n")
        parts += [table(args, _HEADINGS)] if args.model_fields else []
        result = _RESULTS[name, action]
        parts.append(rows_of(("field", "meaning"), [(f"`{field}`", meaning) for field, meaning in result.items()]))
    return "\n".join(parts)


def _error(raised: type[Exception]) -> tuple[str, str, str]:
    retried = "no" if issubclass(raised, errors.Unretryable | errors.MissingSecret) else "yes"
    if issubclass(raised, errors.Away):
        retried = "until it answers"
    return f"`{raised.__name__}`", retried, " ".join(_doc(raised).split())


def _secrets() -> str:
    rows = [("`{secret: NAME}`", _reference(SecretFile)), ("`{env: NAME}`", _reference(SecretEnv))]
    return (
        "## References to secrets\n\n"
        "If a param takes a reference to a secret, the value is read on the node that runs the attempt. It is never\n"
        "replicated, and is redacted from logs, results and errors.\n\n" + rows_of(("reference", "value"), rows)
    )


def _reference(model: type[BaseModel]) -> str:
    """What a reference stands for: its docstring without the form, which it begins with."""
    return _doc(model).partition("`: ")[2]


def _doc(documented: type[Any]) -> str:
    """A class's docstring, with names of exceptions and modules as they are."""
    return re.sub(r" \(`[a-z_.]+\.[A-Z]+`\)", "", cleandoc(documented.__doc__ or ""))
