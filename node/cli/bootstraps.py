"""The command that shows which members fetch finished runs that they lack, and from whom."""

from collections.abc import Mapping
from typing import Any

import click

from node.cli.api import Api, ago, api_command, percent


@click.command("bootstraps")
@api_command
def bootstraps_command(api: Api) -> None:
    """List which node feeds which with finished runs that it lacks, and how far that is."""
    answer = api.client.get("/v1/bootstraps")
    api.show(
        answer,
        lambda: api.table(
            ("TASK", "OWNER", "STATE", "FROM", "RUNS", "RUNS/S", "DONE", "INDEX", "STARTED", "WAITS"),
            (_row(item) for item in answer["items"]),
            "no members yet",
        ),
    )


def _row(item: Mapping[str, Any]) -> tuple[object, ...]:
    latest = item["latest"]
    if latest is None:
        return (item["task"], item["owner"], *([None] * 8))
    fed = " ".join(f"{feeder}={runs}" for feeder, runs in latest["fed"].items())
    return (
        item["task"],
        item["owner"],
        latest["state"],
        fed or None,
        latest["runs"],
        latest["runs_per_s"],
        percent(latest),
        latest["index"],
        ago(latest["started_at"]),
        latest["waiting"],
    )
