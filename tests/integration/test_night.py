"""The night of backups of examples/: its commands register all of it on a real cluster, as its README says."""

from pathlib import Path

import pytest

from tasks.backup.params import BackupParams
from testkit.cluster import Cluster
from tests.integration.howto.conftest import TOKEN, reader_of

pytestmark = [pytest.mark.integration, pytest.mark.more]


def test_the_night_is_registered_by_one_command(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    for name in ("nodes", "reader"):
        (tmp_path / name).mkdir()
    with Cluster(tmp_path / "nodes", 1, env={"ROTA_TOKEN_FILE": str(token_file)}) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        with reader_of(cluster, tmp_path / "reader") as read:
            read("../examples/night/README.md")
        found = [task for task in cluster.all("/v1/tasks") if task["set"] == "night"]
        assert len(found) == 26
        assert all(task["deadlines"]["success_every_s"] for task in found)
        params = [BackupParams.model_validate(task["params"]) for task in found if task["kind"] == "backup"]
        drills = [task["params"]["backups"]["url"] for task in found if task["kind"] == "drill"]
        assert len(drills) == 3
        assert set(drills) <= {f"s3://backups-paris/night/{task['name']}" for task in found}
        assert all(len(each.copies) == 2 and each.encryption is not None for each in params)
        sources = [each.source for each in params]
        assert [source.type for source in sources].count("folder") == 5
        databases = [name for source in sources if source.type == "mariadb" for name in source.databases]
        assert len(databases) + [source.type for source in sources].count("postgres") == 20
