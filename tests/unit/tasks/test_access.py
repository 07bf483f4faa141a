"""What a node's policy allows, decided from values alone."""

from typing import Any

import pytest

from tasks.access import (
    EVERYTHING,
    NOTHING,
    Access,
    AccessRefused,
    addresses,
    check_address,
    check_path,
    parse_hosts,
    postgres_address,
)
from tasks.kind import Failed, Unretryable
from tasks.postgres.url import parse

NODE = Access("node-1", ("/srv", "/data"), ("/backups",), ("db",), ("s3://ours",), ("/data/rota", "/run/secrets"))


@pytest.mark.parametrize("path", ["/srv", "/srv/a/b", "/data/x"])
def test_a_path_below_a_root_is_allowed(path: str) -> None:
    check_path(NODE, "source", path)


@pytest.mark.parametrize(
    ("use", "path", "said"),
    [
        ("source", "/etc/shadow", "node-1 allows no such source: ROTA_SOURCE_ROOTS there names /srv, /data"),
        ("source", "/srv2", "ROTA_SOURCE_ROOTS"),
        ("source", "/backups", "ROTA_SOURCE_ROOTS"),
        ("destination", "/srv", "ROTA_DESTINATION_ROOTS"),
        ("source", "/data/rota", "node-1's own, and is never a source"),
        ("source", "/data/rota/raft/raft.sqlite", "node-1's own"),
    ],
)
def test_a_path_outside_the_roots_is_refused_naming_the_setting(use: Any, path: str, said: str) -> None:
    with pytest.raises(AccessRefused) as refused:
        check_path(NODE, use, path)
    assert said in str(refused.value)


@pytest.mark.parametrize("path", ["/proc/1/environ", "/proc", "/sys/kernel", "/dev/mem", "/run/secrets/x"])
def test_kernel_file_systems_and_the_nodes_own_files_are_refused_below_any_root(path: str) -> None:
    with pytest.raises(AccessRefused, match="no setting allows it"):
        check_path(Access("node-1", ("/", "/proc"), own=NODE.own), "source", path)


def test_no_destination_is_where_programs_are_that_run_later() -> None:
    programs = ("/opt/rota/.venv", "/usr", "/etc")
    access = Access("node-1", ("/",), ("/",), programs=programs)
    for path in ("/opt/rota/.venv/lib/python3.11/site-packages/x.pth", "/etc/cron.d/x", "/usr"):
        with pytest.raises(AccessRefused, match="node-1 or its machine runs programs: name another destination"):
            check_path(access, "destination", path)
        check_path(access, "source", path)
    for path in ("/opt/rota", "/opt/rota/.venv2", "/etc2", "/srv"):
        check_path(access, "destination", path)
    named = Access("node-1", ("/",), ("/", "/usr/local/backups"), programs=programs)
    check_path(named, "destination", "/usr/local/backups/x")
    assert named.closed_programs == ("/opt/rota/.venv", "/etc")


def test_without_settings_everything_is_refused() -> None:
    for use in ("source", "destination"):
        with pytest.raises(AccessRefused, match=f"ROTA_{use.upper()}_ROOTS there is not set"):
            check_path(NOTHING, use, "/srv")
        with pytest.raises(AccessRefused, match=f"ROTA_{use.upper()}_HOSTS there is not set"):
            check_address(NOTHING, use, "db:5432", "postgresql://db/x")
        check_path(EVERYTHING, use, "/srv")
        check_address(EVERYTHING, use, "db:5432", "postgresql://db/x")


def test_an_access_refusal_is_not_retried() -> None:
    assert issubclass(AccessRefused, Unretryable) and issubclass(AccessRefused, Failed)


@pytest.mark.parametrize(
    ("hosts", "url", "options", "allowed"),
    [
        ("s3://ours", "s3://ours/x", {}, True),
        ("s3a://ours/", "s3a://ours", {}, True),
        ("s3://ours", "s3://theirs/x", {}, False),
        ("s3://ours", "s3://ours/x", {"endpoint_url": "http://10.0.0.66:9000"}, False),
        ("s3.internal", "s3://any/x", {"endpoint_url": "https://S3.internal"}, True),
        ("s3.internal:9000", "s3://any/x", {"endpoint_url": "http://s3.internal:9000/"}, True),
        ("s3.internal:9000", "s3://any/x", {"endpoint_url": "http://s3.internal:9001"}, False),
        ("s3.internal", "s3://any/x", {"endpoint_url": "http://s3.internal.evil.example"}, False),
        ("*.internal", "s3://any/x", {"endpoint_url": "http://s3.internal"}, True),
        ("*.internal", "s3://any/x", {"endpoint_url": "http://evilinternal"}, False),
        ("gs://ours", "gcs://ours/x", {}, True),
        ("gs://ours", "gs://ours/x", {"endpoint_url": "http://evil"}, False),
        ("acct.dfs.core.windows.net", "abfs://box@acct.dfs.core.windows.net/x", {}, True),
        ("acct.dfs.core.windows.net", "abfs://box@acct.dfs.core.windows.net/x", {"account_host": "evil"}, False),
        ("abfs://box", "abfs://box/x", {}, True),
        ("abfs://box", "abfs://box/x", {"account_name": "evil"}, False),
        ("box", "sftp://user@box:2222/x", {}, True),
        ("box:22", "sftp://user@box:2222/x", {}, False),
        ("box:22", "sftp://user@box/x", {"port": 2222}, False),
        ("box:22", "ssh://box/x", {}, True),
        ("127.0.0.1", "http://[::1]/x", {}, False),
        ("[::1]", "http://[::1]:8080/x", {}, True),
        ("*", "ftp://anywhere/x", {}, True),
    ],
)
def test_hosts_and_buckets_are_checked_against_the_list(
    hosts: str, url: str, options: dict[str, Any], allowed: bool
) -> None:
    access = Access("node-1", destination_hosts=parse_hosts(hosts))
    found = []
    for address in addresses(url, options):
        try:
            check_address(access, "destination", address, url)
        except AccessRefused as refused:
            found.append(str(refused))
    assert bool(found) is not allowed
    assert all("ROTA_DESTINATION_HOSTS" in refusal for refusal in found)


@pytest.mark.parametrize("port", ["000123456", "1_2", "٢٢", " 22", "0", "-1", "22.0", True])
def test_an_invalid_port_is_refused_without_repeating_it(port: Any) -> None:
    with pytest.raises(ValueError, match=r"^`port` must be a number from 1 to 65535") as raised:
        addresses("sftp://box/x", {"port": port})
    assert str(port).strip() not in str(raised.value)


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://evil\\@s3.internal",
        "http://s3.internal@evil",
        "http://evil:80@s3.internal",
        "http://s3.internal\t.evil",
        "http://",
        "ftp://s3.internal",
        "s3.internal",
        "http://s3.internal:80:81",
    ],
)
def test_an_ambiguous_endpoint_url_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"endpoint_url|does not name a host"):
        addresses("s3://any/x", {"endpoint_url": endpoint})


@pytest.mark.parametrize("entry", ["http://x", "s3://", "s3://a/b", "a b", "-x", "x:port", "*x", "[1"])
def test_an_invalid_host_list_entry_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"is not a (host|bucket)"):
        parse_hosts(entry)


@pytest.mark.parametrize(
    ("url", "reaches"),
    [
        ("postgresql://db/x", ["db:5432"]),
        ("postgresql://a@db:5433,other/x", ["db:5433", "other:5432"]),
        ("postgresql://db/x?host=evil", ["evil:5432"]),
        ("postgresql://db/x?h%6Fst=evil", ["evil:5432"]),
        ("postgresql://db/x?hostaddr=10.6.6.6", ["db:5432", "10.6.6.6:5432"]),
        ("postgresql:///x?hostaddr=10.6.6.6", ["10.6.6.6:5432"]),
        ("postgresql://db%2Cevil/x", ["db:5432", "evil:5432"]),
        ("postgresql://db,/x", ["db:5432", "localhost"]),
        ("postgresql://db@evil/x", ["evil:5432"]),
        ("postgresql://db#@evil/x", ["evil:5432"]),
        ("postgresql:///x", ["localhost"]),
        ("postgresql://%2Frun%2Fpostgresql/x", ["localhost"]),
        ("postgresql://[::1]:5433/x", ["[::1]:5433"]),
        ("postgresql://db/x?port=5433", ["db:5433"]),
    ],
)
def test_every_server_that_libpq_would_contact_is_found(url: str, reaches: list[str]) -> None:
    assert [postgres_address(host, port) for host, port in parse(url).servers] == reaches


def test_a_policy_survives_msgpack_unchanged() -> None:
    from dataclasses import asdict

    import msgpack

    assert Access.unpacked(msgpack.unpackb(msgpack.packb(asdict(NODE)))) == NODE
