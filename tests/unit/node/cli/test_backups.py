"""`rota backup` where the backups of a task are on another machine's disk."""

from pathlib import Path
from typing import Any

import click
import pytest

from node.cli.backups import _url_and_options


class Asked:
    """Stands in for `node.cli.api.Api`: a cluster with one task, and its latest run that succeeded, if there is one."""

    def __init__(self, destination: Path, made: str | None) -> None:
        self._task = {"kind": "backup", "params": {"destination": str(destination)}}
        self._runs = [] if made is None else [{"node": "node-2", "result": {"url": made}, "finished_at": None}]
        self.client = self

    def get(self, where: str, **query: Any) -> dict[str, Any]:
        if where == "/v1/runs":
            assert (query["task"], query["state"]) == ("nightly", "succeeded")
            return {"items": self._runs}
        assert where == "/v1/tasks/nightly"
        return self._task


def test_backups_on_another_machine_s_disk_are_reported_with_their_node(tmp_path: Path) -> None:
    made = f"{tmp_path}/b/nightly/20261122-1"
    with pytest.raises(click.ClickException) as raised:
        _url_and_options(Asked(tmp_path / "b", made), "nightly", None)  # type: ignore[arg-type]
    assert f"node-2 has written {made}" in raised.value.message
    assert "Run this command on node-2, or mount the folder here" in raised.value.message


def test_without_a_successful_run_no_other_node_is_named(tmp_path: Path) -> None:
    url, options = _url_and_options(Asked(tmp_path / "b", None), "nightly", None)  # type: ignore[arg-type]
    assert (url, options) == (f"{tmp_path}/b/nightly", {})


def test_a_folder_that_is_here_is_read_here(tmp_path: Path) -> None:
    (tmp_path / "b" / "nightly").mkdir(parents=True)
    assert _url_and_options(Asked(tmp_path / "b", "elsewhere"), "nightly", None)[0] == f"{tmp_path}/b/nightly"  # type: ignore[arg-type]
