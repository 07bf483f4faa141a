"""A hostile backup: what its SQL reaches when a drill restores it, on a real node and confined by the kernel."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres import Server, postgres_server
from tasks import landlock, seccomp
from testkit.cluster import Cluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock"),
    pytest.mark.skipif(not seccomp.is_supported(), reason="this kernel has no filters of system calls"),
]

WAIT_S = 180.0

HOSTILE = """
CREATE EXTENSION dblink;
CREATE TABLE out (line text);
SELECT lo_create(4711);
CREATE FUNCTION tried(sql text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE sql;
  RETURN 'DONE';
EXCEPTION WHEN OTHERS THEN
  RETURN SQLERRM;
END $$;
CREATE FUNCTION attack() RETURNS TABLE (what text, said text) LANGUAGE plpgsql AS $$
BEGIN
  -- At the source nothing is tried: only a scratch server does not restart after a crash.
  IF current_setting('restart_after_crash') = 'on' THEN RETURN; END IF;
  RETURN QUERY SELECT w, public.tried(s) FROM (VALUES {attacks}) AS given(w, s);
END $$;
CREATE MATERIALIZED VIEW spoils AS SELECT * FROM attack();
ALTER TABLE out OWNER TO rota_drill; ALTER LARGE OBJECT 4711 OWNER TO rota_drill;
ALTER FUNCTION tried(text) OWNER TO rota_drill; ALTER FUNCTION attack() OWNER TO rota_drill;
ALTER MATERIALIZED VIEW spoils OWNER TO rota_drill;
"""
"""All of it belongs to the role that is the superuser of a scratch server, who fills the view there."""


@contextmanager
def listening() -> Iterator[int]:
    """The port of a server on loopback that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def attacks(server: Server, cluster: Cluster, port: int, marker: Path) -> dict[str, str]:
    """SQL by the name of what it tries."""
    socket_folder = server.folder
    return {
        "program": f"COPY public.out FROM PROGRAM 'touch {marker}; id'",
        "secret": f"SELECT pg_read_file('{cluster.secrets_dir}/pg')",
        "backups": f"SELECT pg_ls_dir('{cluster.folder.parent}/to')",
        "users": "SELECT pg_read_file('/etc/shadow')",
        "variables": "SELECT pg_read_binary_file('/proc/self/environ')",
        "write": f"COPY (SELECT 'x') TO '{marker}'",
        "large object": f"SELECT lo_export(4711, '{marker}')",
        "network": f"SELECT public.dblink_connect('host=127.0.0.1 port={port} user=x password=x')",
        "socket": f"SELECT public.dblink_connect('host={socket_folder} user=rota password=hush-hush dbname=postgres')",
        "other scratch": f"SELECT pg_ls_dir('{cluster.folder}/node-1/scratch')",
    }


@pytest.mark.more
def test_a_hostile_dump_reaches_nothing_but_its_own_server(tmp_path: Path) -> None:
    with postgres_server("hush-hush") as server, ExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path / "cluster", 1, {"ROTA_POSTGRES_BIN": str(server.programs)}))
        port = stack.enter_context(listening())
        marker = tmp_path / "owned"
        tried = attacks(server, cluster, port, marker)
        values = ", ".join(f"('{name}', $q${sql}$q$)" for name, sql in tried.items())
        server.sql("postgres", "CREATE DATABASE orders; CREATE ROLE rota_drill SUPERUSER")
        server.sql("orders", HOSTILE.replace("{attacks}", values))
        cluster.start()
        cluster.wait_until_whole()
        (cluster.secrets_dir / "pg").write_text(server.password)
        source = {"type": "postgres", "url": server.url("orders"), "password": {"secret": "pg"}}
        cluster.register("orders", "backup", params={"source": source, "destination": str(tmp_path / "to")})
        assert cluster.wait_for_run(cluster.run("orders"), deadline_s=WAIT_S)["state"] == "succeeded"
        checks: list[dict[str, Any]] = [
            {"sql": "SELECT count(*) FROM spoils", "expect": len(tried)},
            {"sql": "SELECT string_agg(what, ', ' ORDER BY what) FROM spoils WHERE said = 'DONE'", "expect": ""},
            {"sql": "SELECT count(*) FROM spoils WHERE said ~ 'does not exist'", "expect": 0},
            {"sql": "SELECT count(*) FROM spoils WHERE said = 'could not establish connection'", "expect": 2},
        ]
        params = {"backups": {"url": str(tmp_path / "to" / "orders")}, "checks": checks}
        cluster.register("proving", "drill", params=params)
        run = cluster.wait_for_run(cluster.run("proving"), deadline_s=WAIT_S)
        assert run["state"] == "succeeded", run["error"]
        assert not marker.exists()
