"""What an attempt in a real worker may reach: the node's policy is part of the order, and a refusal is not retried."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tasks.access import Access
from tasks.secret import NodesOwn, mark
from testkit.execution.attempts import attempts

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kinds_for_tests")]

BACKUP = "tasks.backup.kind:Backup"


def test_a_source_outside_the_policy_fails_the_run_without_retry(tmp_path: Path) -> None:
    source = tmp_path / "srv"
    source.mkdir()
    params: dict[str, Any] = {
        "source": {"type": "folder", "path": str(source)},
        "destination": str(tmp_path / "backups"),
    }

    async def scenario() -> None:
        async with attempts(tmp_path / "node") as made:
            order = made.launch(params, BACKUP, access=Access("node-7", ("/var",), (str(tmp_path),)))
            ended = await made.ended(order)
            assert (ended.end, ended.retry) == ("failed", False)
            assert f"{source}: node-7 allows no such source: ROTA_SOURCE_ROOTS there names /var" in str(ended.error)
            assert "Traceback" not in made.log(order)
            own = Access("node-7", ("/",), ("/",), own=(str(tmp_path / "node"),))
            order = made.launch(params | {"destination": str(tmp_path / "node" / "logs")}, BACKUP, access=own)
            assert "node-7's own, and is never a destination" in str((await made.ended(order)).error)
            allowed = Access("node-7", (str(source),), (str(tmp_path / "backups"),))
            order = made.launch(params, BACKUP, access=allowed)
            assert (await made.asked()).run_id == order.run_id, "it continues until its first checkpoint"

    asyncio.run(scenario())


def test_nothing_is_restored_to_where_programs_are_that_run_later(tmp_path: Path) -> None:
    crontabs = tmp_path / "cron.d"
    crontabs.mkdir()
    (tmp_path / "link").symlink_to(crontabs)
    access = Access("node-7", ("/",), ("/",), programs=(str(crontabs),))

    async def scenario() -> None:
        async with attempts(tmp_path / "node") as made:
            for target in (crontabs / "evil", tmp_path / "link" / "evil"):
                params = {"backups": {"url": str(tmp_path / "to")}, "target": str(target)}
                ended = await made.ended(made.launch(params, "tasks.restore.kind:Restore", access=access))
                assert (ended.end, ended.retry) == ("failed", False)
                assert f"is in {crontabs}, from which node-7 or its machine runs programs" in str(ended.error)
            assert list(crontabs.iterdir()) == []

    asyncio.run(scenario())


def test_the_nodes_own_secret_is_not_resolved_in_a_worker(tmp_path: Path) -> None:
    (tmp_path / "rota_secret").write_text("the-members-secret\n")
    (tmp_path / "copy").write_text("the-members-secret\n")
    own = NodesOwn((str(tmp_path / "rota_secret"),), "", b"key", (mark("the-members-secret", b"key"),))

    async def scenario() -> None:
        async with attempts(tmp_path) as made:
            for name in ("rota_secret", "copy"):
                order = made.act("tells", params={"secret": {"secret": name}}, own=own)
                ended = await made.ended(order)
                assert (ended.end, ended.retry) == ("failed", False)
                assert f"secret '{name}' is the node's own" in str(ended.error)
                assert "the-members" not in made.log(order)

    asyncio.run(scenario())
