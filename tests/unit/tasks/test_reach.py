"""The warnings about paths and hosts that a node gives when a task is registered."""

from typing import Any

import pytest

from tasks.access import EVERYTHING, Access
from tasks.installed_kinds import InstalledKinds, KindEntry, installed, load_kind, refused_reaches

ACCESS = Access(
    "node-1",
    source_roots=("/srv",),
    destination_roots=("/mnt/backups/t",),
    source_hosts=("db",),
    destination_hosts=("s3://allowed", "10.0.0.9"),
    own=("/srv/rota",),
)
TABLE = "/mnt/backups/t/table"
FOLDER = {"type": "folder", "path": "/srv/x"}


@pytest.mark.parametrize(
    ("kind", "params", "expected"),
    [
        ("backup", {"source": FOLDER, "destination": "/mnt/backups"}, []),
        (
            "backup",
            {"source": {**FOLDER, "path": "/srv/../etc"}, "destination": "s3://allowed/x"},
            ["ROTA_SOURCE_ROOTS"],
        ),
        (
            "backup",
            {"source": {"type": "sqlite", "path": "/x.db"}, "destination": "/mnt/backups"},
            ["ROTA_SOURCE_ROOTS"],
        ),
        ("backup", {"source": {**FOLDER, "path": "/srv/rota/logs"}, "destination": "/mnt/backups"}, ["node-1's own"]),
        ("backup", {"source": FOLDER, "destination": "file:///mnt/other"}, ["ROTA_DESTINATION_ROOTS"]),
        ("backup", {"source": FOLDER, "destination": "s3://other/x"}, ["ROTA_DESTINATION_HOSTS"]),
        (
            "backup",
            {"source": FOLDER, "destination": "s3://other/x", "options": {"endpoint_url": "http://10.0.0.9"}},
            [],
        ),
        (  # what the secret says is not looked up
            "backup",
            {"source": FOLDER, "destination": "s3://other/x", "options": {"endpoint_url": {"secret": "where"}}},
            [],
        ),
        (
            "backup",
            {"source": {"type": "postgres", "url": "postgresql://a@db,other/x"}, "destination": "s3://other"},
            ["ROTA_SOURCE_HOSTS", "ROTA_DESTINATION_HOSTS"],
        ),
        ("ingest", {"source": "/srv/in/*.csv", "format": "csv", "table": TABLE}, []),
        (
            "ingest",
            {"source": ["/srv/in/*.csv", "/data/*.csv", "s3://other/*.csv"], "format": "csv", "table": "/mnt/t"},
            ["ROTA_SOURCE_ROOTS", "ROTA_SOURCE_HOSTS", "ROTA_DESTINATION_ROOTS"],
        ),
        ("command", {"argv": ["cat", "/etc/shadow"]}, []),
    ],
)
def test_each_field_that_the_policy_refuses_is_reported_with_the_setting(
    kind: str, params: dict[str, Any], expected: list[str]
) -> None:
    loaded = load_kind(installed()[kind].target)
    told = refused_reaches(loaded, params, "t", ACCESS)
    assert len(told) == len(expected), told
    for sentence, words in zip(told, expected, strict=True):
        assert sentence.startswith("params.")
        assert words in sentence
        assert "node-1" in sentence
    assert refused_reaches(loaded, params, "t", EVERYTHING) == []


class Hasty:
    """A kind whose check raises an error for these params."""

    Params = load_kind(installed()["command"].target).Params

    @staticmethod
    def reaches(params: Any, task: str) -> list[Any]:
        raise LookupError(f"a secret of {task}")

    def run(self, ctx: Any) -> None:
        return None


def test_a_kind_whose_reach_check_raises_can_be_registered(caplog: pytest.LogCaptureFixture) -> None:
    kinds = InstalledKinds({"hasty": KindEntry("hasty", f"{__name__}:Hasty")}, ACCESS)
    assert kinds.refused("hasty", {"argv": ["true"]}, "t", None) == []
    [line] = caplog.messages
    assert "LookupError" in line
    assert "a secret" not in line
