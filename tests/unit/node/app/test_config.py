import sys
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from node.app.config import BadConfig, Config, load_config, nothing_allowed, secrets_in_reach
from node.app.data_dir import DataDir
from node.app.projections import join_of
from node.execution.limits import Amounts
from node.execution.machine import memory_bytes
from node.membership.addresses import Agreed
from node.settings.row import rows_of
from node.settings.table import FILE_NAMES, SETTINGS, NodeSettings, unknown_settings
from node.settings.values import parse_members
from node.storage.room import Bounds
from tasks.access import Access
from tasks.kind import MissingSecret
from tasks.secret import resolve

WELL = {
    "ROTA_NODE": "node-1",
    "ROTA_MEMBERS": "node-1=127.0.0.1:7001:8101,node-2=127.0.0.1:7002:8102",
    "ROTA_SECRET": "0123456789abcdef",
}


def problems(**changes: str) -> str:
    with pytest.raises(BadConfig) as raised:
        load_config({**WELL, **changes})
    return str(raised.value)


def test_a_complete_environment_makes_a_config() -> None:
    config = load_config({**WELL, "ROTA_LABELS": "zone=a,disk=ssd", "ROTA_CAPACITY": "3", "ROTA_ALLOW_COMMAND": "1"})
    assert isinstance(config, Config)
    assert config.me == parse_members(WELL["ROTA_MEMBERS"])[0]
    assert config.labels == (("disk", "ssd"), ("zone", "a"))
    assert (config.capacity, config.allow_command, config.bind) == (3, True, "127.0.0.1")


def test_a_member_list_without_the_node_itself_is_refused() -> None:
    assert "ROTA_MEMBERS does not contain this node" in problems(ROTA_NODE="node-9")


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ROTA_NODE", "a/b", "is not a valid id"),
        ("ROTA_MEMBERS", "node-1=127.0.0.1:7001", "is not id=host:raftport:httpport"),
        ("ROTA_MEMBERS", "node-1=h:1:2,node-1=h:3:4", "the same id"),
        ("ROTA_MEMBERS", "node-1=h:1:2,node-2=h:1:4", "h:1 is there twice"),
        ("ROTA_MEMBERS", "node-1=h:1:1", "h:1 is there twice: each member has a Raft port and an HTTP port of its own"),
        ("ROTA_MEMBERS", "node-1=h:99999:2", "between 1 and 65535"),
        ("ROTA_CAPACITY", "0", "whole number from 1"),
        ("ROTA_MAX_RUNS", "many", "whole number from 1"),
        ("ROTA_SCRATCH_BYTES", "10G", "whole number from 0"),
        ("ROTA_LIMIT_MEMORY", "10G", "is not a size"),
        ("ROTA_LIMIT_MEMORY", "1MiB", "must be 0, or from 32MiB"),
        ("ROTA_LIMIT_MEMORY", "-1", "is not a size"),
        ("ROTA_LIMIT_CPU", "1.0005", "three decimal places at most"),
        ("ROTA_LIMIT_CPU", "0.001", "must be 0, or from 0.01"),
        ("ROTA_LIMIT_CPU", "nan", "must be a number of cores"),
        ("ROTA_LIMIT_PROCESSES", "1", "whole number from 8"),
        ("ROTA_LIMIT_FILES", "99999999999", "whole number from 32"),
        ("ROTA_METRICS_TASKS", "-1", "whole number from 0"),
        ("ROTA_ALLOW_COMMAND", "perhaps", "must be 1 or 0"),
        ("ROTA_LABELS", "zone", "name=value"),
        ("ROTA_LABELS", "zone=a,node=node-2", "every member has that label with its own id ('node-1' here)"),
        ("ROTA_ENV_ALLOW", "HOME,ROTA_SECRET", "never given to tasks"),
        ("ROTA_SECRET", "", "ROTA_SECRET (or ROTA_SECRET_FILE) is not set"),
        ("ROTA_SECRET_FILE", "/some/file", "both set"),
        ("ROTA_BIND", "0.0.0.0", "ROTA_TOKEN (or ROTA_TOKEN_FILE) is not set"),
    ],
)
def test_a_wrong_value_is_reported_with_its_variable(variable: str, value: str, said: str) -> None:
    assert said in problems(**{variable: value})


def test_every_member_has_its_id_as_a_label() -> None:
    config = load_config({**WELL, "ROTA_LABELS": "zone=a,node=node-1"})
    seed = parse_members(WELL["ROTA_MEMBERS"])[0]
    assert join_of(config, seed, 7003, {}, 0, 1).labels == (("node", "node-1"), ("zone", "a"))


BOUNDS = [field.name for field in fields(Bounds)]
LONG = "f00dfeedf00dfeed"


@pytest.mark.parametrize("name", ["ROTA_SECRET", "ROTA_TOKEN", "ROTA_READ_TOKEN"])
def test_a_short_secret_or_token_is_refused_beyond_loopback(name: str) -> None:
    far = {"ROTA_SECRET": LONG, "ROTA_TOKEN": LONG, "ROTA_BIND": "0.0.0.0"}
    assert load_config({**WELL, **far}).bind == "0.0.0.0"
    said = problems(**{**far, name: LONG[1:]})
    assert f"{name} is too short" in said
    assert "15 characters" in said
    assert "openssl rand -hex 32" in said
    assert load_config({**WELL, **far, name: LONG[1:], "ROTA_BIND": "127.0.0.1"})


def test_a_token_to_read_needs_one_to_write_and_differs_from_it() -> None:
    assert load_config({**WELL, "ROTA_TOKEN": LONG, "ROTA_READ_TOKEN": "other"}).read_token == "other"
    assert "ROTA_TOKEN is not" in problems(ROTA_READ_TOKEN=LONG)
    assert "is the same as ROTA_TOKEN" in problems(ROTA_TOKEN=LONG, ROTA_READ_TOKEN=LONG)


def test_members_need_not_be_set_if_the_data_folder_knows_them(tmp_path: Path) -> None:
    seed = parse_members(WELL["ROTA_MEMBERS"])[0]
    environ = {"ROTA_NODE": "node-1", "ROTA_SECRET": WELL["ROTA_SECRET"], "ROTA_DATA": str(tmp_path)}
    with pytest.raises(BadConfig, match="neither ROTA_MEMBERS nor ROTA_JOIN"):
        load_config(environ)
    with closing(DataDir(tmp_path, "node-1", 1)) as folder:
        folder.keep_place(seed)
        folder.keep_agreed({"node-1": Agreed((seed.host, seed.raft_port), None)})
    assert load_config(environ).members == ()


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(BadConfig) as raised:
        load_config({"ROTA_CAPACITY": "none"})
    assert [
        word for word in ("ROTA_NODE", "ROTA_MEMBERS", "ROTA_SECRET", "ROTA_CAPACITY") if word not in str(raised.value)
    ] == []


def test_secrets_come_from_files_too(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("fedcba9876543210\n")
    environ = {**WELL, "ROTA_SECRET_FILE": str(tmp_path / "secret")}
    del environ["ROTA_SECRET"]
    assert load_config(environ).secret == "fedcba9876543210"
    assert "No such file" in problems(ROTA_SECRET="", ROTA_SECRET_FILE=str(tmp_path / "none"))


def test_raw_bytes_are_refused_as_a_secret_with_a_command_that_makes_one(tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(bytes(range(128, 160)))
    for name in ("ROTA_SECRET", "ROTA_TOKEN"):
        said = problems(**{"ROTA_SECRET": "", f"{name}_FILE": str(tmp_path / "raw")})
        assert f"{name}_FILE={tmp_path / 'raw'}: is not UTF-8 text" in said
        assert "openssl rand -hex 32" in said
    assert "ROTA_SECRET: is not UTF-8 text" in problems(ROTA_SECRET="0123456789abcdef\udcff")


class Asked(dict[str, str]):
    """An environment that notes which variables are read."""

    def __init__(self, environ: dict[str, str]) -> None:
        super().__init__(environ)
        self.names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)


def test_every_setting_of_the_table_is_read() -> None:
    environ = Asked(WELL)
    load_config(environ)
    assert environ.names == {*SETTINGS, *FILE_NAMES} - {"ROTA_URL"}, "the table and config.py do not agree"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_example_of_a_setting_is_a_value_that_it_takes(name: str) -> None:
    far = {"ROTA_TOKEN": LONG} if name in ("ROTA_BIND", "ROTA_READ_TOKEN") else {}
    assert SETTINGS[name].example
    load_config({**WELL, **far, name: SETTINGS[name].example})


def test_misspelt_settings_are_found() -> None:
    assert unknown_settings({**WELL, "ROTA_MEMBRES": "", "PATH": ""}) == ["ROTA_MEMBRES"]


def test_a_setting_that_an_installed_kind_asks_for_is_known() -> None:
    assert unknown_settings({**WELL, "ROTA_SPARK_MASTER": "local[2]", "ROTA_SPARK_MASTR": "x"}) == ["ROTA_SPARK_MASTR"]


def test_kinds_can_ask_for_settings_that_are_not_the_nodes_own() -> None:
    config = load_config({**WELL, "ROTA_SPARK_MASTER": " local[2] ", "ROTA_ENGINE": ""})
    assert config.kind_settings == {"ROTA_SPARK_MASTER": "local[2]"}


def test_what_tasks_may_reach_is_what_the_settings_name(tmp_path: Path) -> None:
    environ = {
        **WELL,
        "ROTA_DATA": str(tmp_path / "data"),
        "ROTA_SECRETS_DIR": str(tmp_path / "tasks"),
        "ROTA_SOURCE_ROOTS": "/srv, /var/lib/app/",
        "ROTA_DESTINATION_ROOTS": "/backups",
        "ROTA_SOURCE_HOSTS": "db.internal:5432",
        "ROTA_DESTINATION_HOSTS": "s3://ours,sftp.internal",
        "ROTA_POSTGRES_BIN": "/usr/lib/postgresql/17/bin",
    }
    access = load_config(environ).access
    assert sys.prefix in access.programs
    assert replace(access, programs=()) == Access(
        "node-1",
        ("/srv", "/var/lib/app"),
        ("/backups",),
        ("db.internal:5432",),
        ("s3://ours", "sftp.internal"),
        (str(tmp_path / "data"), str(tmp_path / "tasks")),
        "/usr/lib/postgresql/17/bin",
    )
    assert nothing_allowed(load_config(environ).access) == []
    for name, wrong, said in (
        ("ROTA_SOURCE_ROOTS", "srv", "absolute paths"),
        ("ROTA_SOURCE_ROOTS", "/srv/../etc", "without '..'"),
        ("ROTA_DESTINATION_HOSTS", "https://s3.internal", "is not a bucket"),
        ("ROTA_POSTGRES_BIN", "bin", "absolute paths"),
    ):
        assert said in problems(**{name: wrong})


def test_unset_access_settings_allow_nothing_unless_the_node_runs_commands() -> None:
    assert len(nothing_allowed(load_config(WELL).access)) == 4
    assert nothing_allowed(load_config({**WELL, "ROTA_ALLOW_COMMAND": "1"}).access) == []
    told = load_config({**WELL, "ROTA_ALLOW_COMMAND": "1", "ROTA_SOURCE_ROOTS": "/srv"}).access
    assert (told.source_roots, told.destination_roots) == (("/srv",), ("/",))


def test_the_node_s_secrets_in_the_tasks_folder_are_found_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "link").symlink_to("secrets")
    for name in ("rota_secret", "rota_token"):
        (tmp_path / "secrets" / name).write_text("0123456789abcdef")
    environ = {
        **WELL,
        "ROTA_SECRET": "",
        "ROTA_SECRET_FILE": str(tmp_path / "secrets" / "rota_secret"),
        "ROTA_TOKEN_FILE": str(tmp_path / "link" / "rota_token"),
        "ROTA_SECRETS_DIR": str(tmp_path / "secrets"),
    }
    config = load_config(environ)
    said = secrets_in_reach(config.own, config.secrets_dir)
    assert len(said) == 2 and all("secrets/tasks" in sentence for sentence in said)
    assert secrets_in_reach(config.own, tmp_path / "tasks") == []
    for name in ("rota_secret", "rota_token"):
        with pytest.raises(MissingSecret, match="the node's own"):
            resolve({"secret": name}, config.secrets_dir, (), {}, config.own)


def test_a_wrong_switch_is_reported_once() -> None:
    assert problems(ROTA_ALLOW_COMMAND="perhaps").count("ROTA_ALLOW_COMMAND") == 1


def test_limits_of_attempts_are_read_and_have_defaults_of_this_machine() -> None:
    unset = load_config(WELL).limits
    assert unset.memory is not None
    assert 0 < unset.memory < memory_bytes()
    assert (unset.cpu_milli, unset.processes, unset.files) == (None, 4096, None)
    names = ("MEMORY", "CPU", "PROCESSES", "FILES")
    values = zip(names, ("1GiB", "0.25", "64", "64"), strict=True)
    given = load_config({**WELL, **{f"ROTA_LIMIT_{name}": value for name, value in values}})
    assert given.limits == Amounts(2**30, 250, 64, 64)
    assert load_config({**WELL, **{f"ROTA_LIMIT_{name}": "0" for name in names}}).limits == Amounts()


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"ROTA_RUN_AS": "deploy,1001"}, "'1001' is not a user's name"),
        ({"ROTA_RUN_AS": "deploy postgres"}, "'deploy postgres' is not a user's name"),
        ({"ROTA_RUN_AS": "-u"}, "'-u' is not a user's name"),
        ({"ROTA_WORK_UIDS": "70000"}, "must be FIRST-LAST"),
        ({"ROTA_WORK_UIDS": "0-99"}, "must be from 1000 to 4294967294"),
        ({"ROTA_WORK_UIDS": "70099-70000"}, "the first not after the last"),
        ({"ROTA_WORK_UIDS": "4294967200-4294967295"}, "must be from 1000 to 4294967294"),
        ({"ROTA_WORK_UIDS": "70000-70014", "ROTA_MAX_RUNS": "8"}, "has 15 user ids, and must have 16 at least"),
    ],
)
def test_users_that_cannot_be_are_refused(changes: dict[str, str], what: str) -> None:
    assert what in problems(**changes)


def test_users_of_attempts() -> None:
    assert not load_config(WELL).other_users
    config = load_config(
        WELL | {"ROTA_RUN_AS": "deploy, www-data", "ROTA_WORK_UIDS": "70000-70099", "ROTA_MAX_RUNS": "8"}
    )
    assert (config.run_as, config.work_uids) == (("deploy", "www-data"), range(70_000, 70_100))
    assert config.other_users


def test_each_bound_of_the_disk_is_a_setting() -> None:
    given = {row.name: str(number) for number, (field, row) in enumerate(rows_of(NodeSettings)) if field in BOUNDS}
    assert len(given) == len(BOUNDS)
    bounds = load_config({**WELL, **given}).bounds
    assert [str(getattr(bounds, field)) for field, row in rows_of(NodeSettings) if field in BOUNDS] == [*given.values()]


def test_keys_of_receivers_are_kept_apart_where_something_is_sent_to_them(tmp_path: Path) -> None:
    keys = {"OTEL_EXPORTER_OTLP_HEADERS": "x=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x=2"}
    more = {"OPENLINEAGE_API_KEY": "k", "OPENLINEAGE__TRANSPORT__AUTH": '{"apiKey": "k"}'}
    others = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OPENLINEAGE_URL": "http://m:5000"}
    given = {**WELL, **keys, **more, **others}
    assert load_config({**given, "ROTA_TRACES": "1"}).export_secrets == keys
    assert load_config({**given, "ROTA_LINEAGE": "1"}).export_secrets == more
    file = tmp_path / "openlineage.yml"
    file.write_text("transport: {type: http, url: http://m:5000, auth: {type: api_key, apiKey: k}}")
    configured = {**given, "OPENLINEAGE_CONFIG": str(file)}
    assert str(file) in load_config({**configured, "ROTA_LINEAGE": "1"}).own.files
    assert str(file) not in load_config(configured).own.files
    config = load_config({**given, "ROTA_LINEAGE": "0"})
    assert (config.traces, config.lineage, config.export_secrets) == (False, False, {})
    assert "ROTA_TRACES='often': must be 1 or 0" in problems(ROTA_TRACES="often")
