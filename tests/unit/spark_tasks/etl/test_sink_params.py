"""The params of the sinks `sqlite` and `webhook`, and what they reach. Without Spark."""

from typing import Any

import pytest
from pydantic import ValidationError

from spark_tasks.etl.kind import Etl
from spark_tasks.etl.params import EtlParams
from spark_tasks.sqlite.params import SqliteTable
from spark_tasks.webhook.params import Webhook
from tasks.access import Access
from tasks.reach import refusals

SOURCE = {"type": "postgres", "url": "postgresql://rota@db.internal/orders", "table": "orders"}
FILE = {"type": "sqlite", "path": "/srv/out/report.db", "table": "orders", "mode": "append"}
HOOK = {"type": "webhook", "url": "https://hooks.internal/orders?team=data", "ledger": "s3://lake/hooks"}


def _params(sink: dict[str, Any], **more: Any) -> EtlParams:
    return EtlParams.model_validate({"source": SOURCE, "sink": sink, **more})


def test_a_sink_is_chosen_by_its_type() -> None:
    assert isinstance(_params(FILE).sink, SqliteTable)
    hook = _params(HOOK).sink
    assert isinstance(hook, Webhook)
    assert (hook.batch_rows, hook.timeout_s, hook.secret, hook.replaces) == (1000, 30, None, False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (FILE | {"path": "report.db"}, "match pattern"),
        (FILE | {"path": "/srv/out/"}, "match pattern"),
        (FILE | {"table": "Rota_Batches"}, "cannot be the table"),
        (FILE | {"table": "sqlite_schema"}, "cannot be the table"),
        (FILE | {"mode": "upsert"}, "`keys` are needed"),
        (FILE | {"tombstone": "gone"}, "`tombstone` needs"),
        (HOOK | {"url": "ftp://hooks.internal/x"}, "begins with http"),
        (HOOK | {"url": "https://user:hush@hooks.internal/x"}, "must name no user"),
        (HOOK | {"url": "https://hooks.internal\\@evil/x"}, "must name no user"),
        (HOOK | {"url": "https://hooks.internal/a b"}, "no spaces"),
        (HOOK | {"url": "https:///x"}, "does not name a host"),
        (HOOK | {"url": "https://hooks.internal:99999/x"}, "Port out of range"),
        (HOOK | {"ledger": "hooks"}, "must begin with '/'"),
        (HOOK | {"ledger": "gs://lake/hooks"}, "a ledger cannot be at gs://"),
        (HOOK | {"ledger": "s3://lake"}, "it cannot be a whole bucket"),
        ({name: value for name, value in HOOK.items() if name != "ledger"}, "Field required"),
        (HOOK | {"options": {"profile": "x"}}, "cannot be set by a task"),
        (HOOK | {"headers": {"Webhook-Id": "x"}}, "cannot be set"),
        (HOOK | {"headers": {"content-length": "1"}}, "cannot be set"),
        (HOOK | {"headers": {"a b": "1"}}, "cannot be set"),
        (HOOK | {"headers": {"Authorization": "Bearer x"}}, "is a secret"),
        (HOOK | {"headers": {"x": "a\r\nb: c"}}, "printable ASCII"),
        (HOOK | {"batch_rows": 0}, "greater than or equal to 1"),
    ],
)
def test_wrong_params_are_refused_with_a_reason(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _params(wrong)


def test_a_file_that_is_replaced_needs_a_source_that_is_read_whole() -> None:
    with pytest.raises(ValidationError, match="read whole"):
        _params(FILE | {"mode": "replace"}, incremental={"xmin": True})


def test_a_file_and_a_local_ledger_are_on_the_member_s_own_disk_unless_they_are_shared() -> None:
    assert Etl.local_data(_params(FILE)) == ["sink"]
    assert Etl.local_data(_params(FILE | {"shared": True})) == []
    assert Etl.local_data(_params(HOOK)) == []
    assert Etl.local_data(_params(HOOK | {"ledger": "/data/hooks"})) == ["sink"]
    assert Etl.local_data(_params(HOOK | {"ledger": "file:///data/hooks", "shared": True})) == []


def test_what_a_node_does_not_allow_is_named_with_its_field() -> None:
    access = Access("node-1", ("/srv",), ("/srv",), ("*",), ("hooks.internal:443", "s3://lake"))
    assert refusals(access, Etl.reaches(_params(FILE), "t")) == []
    assert refusals(access, Etl.reaches(_params(HOOK), "t")) == []
    nothing = Access("node-1", source_hosts=("*",))
    [file] = refusals(nothing, Etl.reaches(_params(FILE), "t"))
    assert file.startswith("params.sink: /srv/out/report.db: node-1 allows no such destination")
    server, ledger = refusals(nothing, Etl.reaches(_params(HOOK), "t"))
    assert server.startswith("params.sink: https://hooks.internal/orders")
    assert ledger.startswith("params.sink.ledger: s3://lake/hooks")
    [folder] = refusals(access, Etl.reaches(_params(HOOK | {"ledger": "/data/hooks"}), "t"))
    assert folder.startswith("params.sink.ledger: /data/hooks: node-1 allows no such destination")
