"""docker-compose.yml without a Docker engine: rights and mounts of each service, and the move of old secrets.

`make compose-test` runs it on an engine.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from node.settings.table import unknown_settings
from node.settings.values import parse_members
from spark_tasks.spark.master import standalone_masters

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NODES = [name for name in SERVICES if name.startswith("node-")]
SPARK = [name for name in SERVICES if name.startswith("spark-")]


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_has_rights_that_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert (service.get("cap_add") is None) == (name in NODES + SPARK)


@pytest.mark.parametrize("name", NODES)
def test_a_node_writes_to_volumes_only_and_its_own_secrets_are_no_tasks(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["tmpfs"]) == (True, ["/tmp"])
    places = dict(volume.rsplit(":/", 1) for volume in service["volumes"])
    assert places[name] == "data"
    assert {"backups": "backups", "${ROTA_DATA_VOLUME:-data}": "srv/data"}.items() <= places.items()
    assert service["volumes"][-2:] == [
        "${ROTA_SECRETS:-./secrets}/node:/run/rota:ro",
        "${ROTA_SECRETS:-./secrets}/tasks:/run/secrets:ro",
    ]
    environment = service["environment"]
    assert environment["ROTA_SECRETS_DIR"] == "/run/secrets"
    assert [environment[f"ROTA_{what}_FILE"] for what in ("SECRET", "TOKEN")] == [
        "/run/rota/rota_secret",
        "/run/rota/rota_token",
    ]
    assert unknown_settings(environment) == []


def test_the_database_sees_its_own_password_and_no_other() -> None:
    mounted = [volume for volume in SERVICES["postgres"]["volumes"] if "secrets" in volume]
    assert mounted == ["${ROTA_SECRETS:-./secrets}/tasks/pg_password:/run/secrets/pg_password:ro"]


def _given(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_growing_to_five_changes_nothing_that_compose_would_start_the_three_anew_for() -> None:
    given = _given("five.env")
    assert given == {"COMPOSE_PROFILES": "five"}
    lists = {name: parse_members(SERVICES[name]["environment"]["ROTA_MEMBERS"]) for name in NODES}
    assert {name: [seed.id for seed in seeds] for name, seeds in lists.items()} == {
        name: NODES if SERVICES[name].get("profiles") == ["five"] else NODES[:3] for name in NODES
    }
    assert len({tuple(seeds[:3]) for seeds in lists.values()}) == 1
    assert {SERVICES[name]["environment"]["ROTA_AUTO_JOIN"] for name in NODES} == {"${ROTA_AUTO_JOIN:-1}"}


def test_the_spark_cluster_is_of_the_image_with_spark_and_the_nodes_know_its_master() -> None:
    given = _given("spark-cluster.env")
    for name in SPARK:
        service = SERVICES[name]
        assert service["profiles"] == [given["COMPOSE_PROFILES"]]
        assert (service["build"]["target"], service["image"]) == (given["ROTA_TARGET"], f"{given['ROTA_TARGET']}:local")
        assert set(service["healthcheck"]) == {"test", "interval", "timeout", "start_period", "retries"}
    [(host, port)] = standalone_masters(given["ROTA_SPARK_MASTER"])
    assert f"--host {host} --port {port} " in SERVICES[host]["command"][-1]
    workers = [SERVICES[name]["command"][-1].split() for name in SPARK if name != host]
    assert [words[-1] for words in workers] == [given["ROTA_SPARK_MASTER"]] * 2
    environment = SERVICES["node-1"]["environment"]
    assert all(environment[name].startswith(f"${{{name}:-") for name in given if name.startswith("ROTA_SPARK_"))


def test_executors_see_the_data_where_nodes_do_and_no_secrets() -> None:
    seen = ["${ROTA_DATA_VOLUME:-data}:/srv/data", f"exchange:{_given('spark-cluster.env')['ROTA_SPARK_SHARED']}"]
    for name in NODES:
        assert set(seen) <= set(SERVICES[name]["volumes"])
    for name in SPARK:
        service = SERVICES[name]
        assert service["volumes"] == [f"{name}:/data", *(seen if "worker" in name else [])]
        assert (service["read_only"], service.get("environment"), service.get("ports")) == (True, None, None)
        assert name in COMPOSE["volumes"]


def test_secrets_of_earlier_versions_are_moved_and_existing_ones_kept(tmp_path: Path) -> None:
    """A running cluster must keep its secret."""
    programs, secrets = tmp_path / "bin", tmp_path / "secrets"
    programs.mkdir()
    for name, script in (("chown", ":"), ("install", "shift 7; mkdir -p node tasks"), ("python3", "echo made")):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    secrets.mkdir()
    for name in ("README.md", "rota_secret", "pg_password", "s3 key"):
        (secrets / name).write_text(f"{name} of before")
    script = SERVICES["secrets"]["command"][-1].replace("$$", "$").replace("/secrets", str(secrets))
    env = {**os.environ, "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}"}
    for _ in range(2):
        done = subprocess.run(["sh", "-euc", script], env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        held = {
            str(file.relative_to(secrets)): file.read_text().strip() for file in secrets.rglob("*") if file.is_file()
        }
        assert held == {
            "README.md": "README.md of before",
            "node/rota_secret": "rota_secret of before",
            "node/rota_token": "made",
            "tasks/pg_password": "pg_password of before",
            "tasks/s3 key": "s3 key of before",
        }
