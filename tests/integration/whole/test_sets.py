"""Sets of files: applied, compared and pruned, as from a repository."""

from pathlib import Path

import pytest

from testkit.command import Rota

pytestmark = pytest.mark.integration


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of tasks, with what else lies in a repository."""
    (tmp_path / "deep").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config.yaml").write_text("not: a task\n")
    (tmp_path / "README.md").write_text("# Tasks\n")
    (tmp_path / "one.yaml").write_text("{name: set-one, kind: probe, params: {steps: 2}}\n")
    (tmp_path / "deep" / "two.json").write_text('[{"name": "set-two", "kind": "probe"}]')
    return tmp_path


def test_a_folder_is_a_set_that_is_kept_in_line(rota: Rota, folder: Path) -> None:
    assert rota("apply", "-f", "-", stdin="{name: set-by-hand, kind: probe}").code == 0
    of_set = ("-f", str(folder), "--set", "site", "--prune")
    before = rota("diff", *of_set)
    assert (before.code, before.out.splitlines()) == (
        4,
        ["+ set-two", "+ set-one", "2 new, 0 changed, 0 deleted, 0 as in the files"],
    )
    assert rota("apply", *of_set).code == 0
    same = rota("diff", *of_set)
    assert (same.code, same.out) == (0, "0 new, 0 changed, 0 deleted, 2 as in the files\n")
    assert [task["name"] for task in rota("tasks", "--set", "site", "--json").json["items"]] == ["set-one", "set-two"]

    (folder / "deep" / "two.json").unlink()
    (folder / "one.yaml").write_text("{name: set-one, kind: probe, params: {steps: 3}}\n")
    different = rota("diff", *of_set)
    assert (different.code, different.out.splitlines()) == (
        4,
        ["~ set-one", "  params.steps: 2 -> 3", "- set-two", "0 new, 1 changed, 1 deleted, 0 as in the files"],
    )
    tried = rota("apply", *of_set, "--dry-run")
    assert tried.out.splitlines()[-1] == "set-two: would be deleted"
    assert rota("show", "set-two").code == 0, "a dry run deletes nothing"
    assert rota("apply", *of_set).out.splitlines() == [
        "set-one: changed (version 2)",
        "set-two: deleted, and its runs are cancelled",
    ]
    assert rota("show", "set-two").code == 1
    assert rota("show", "set-by-hand").code == 0, "a task of no set is not pruned"

    (folder / "one.yaml").unlink()
    empty = rota("apply", *of_set)
    assert (empty.code, "add --allow-empty" in empty.err) == (2, True)
    assert rota("show", "set-one").code == 0
    assert rota("apply", *of_set, "--allow-empty").out == "set-one: deleted, and its runs are cancelled\n"


def test_a_task_is_not_taken_from_another_set_unasked(rota: Rota) -> None:
    assert rota("apply", "-f", "-", "--set", "one", stdin="{name: set-shared, kind: probe}").code == 0
    for words in (("--set", "two"), ()):
        refused = rota("apply", "-f", "-", *words, stdin="{name: set-shared, kind: probe}")
        assert refused.code == 2
        assert "belongs to the set 'one'" in refused.err
        assert "--adopt" in refused.err
    assert rota("apply", "-f", "-", "--set", "two", "--adopt", stdin="{name: set-shared, kind: probe}").code == 0
    assert rota("show", "set-shared", "--json").json["set"] == "two"


def test_a_crontab_becomes_tasks(rota: Rota) -> None:
    made = rota("import", "crontab", "--timezone", "UTC", stdin="*/5 * * * * /usr/bin/true --often\n@reboot x\n")
    assert made.code == 0
    assert "line 2: left out: @reboot has no meaning in a cluster" in made.err
    assert rota("apply", "-f", "-", "--dry-run", stdin=made.out).out == "true-03d648: would be created (version 1)\n"


WHOLE = r"""
name: set-whole
kind: command
params: {argv: [x, "\L a \N", "1e3", "2026-01-01", "on"], env: {A: "010", B: {secret: s}}, cwd: /tmp}
schedule: {cron: "0 3 * * mon-fri", timezone: Europe/Paris}
key: k
group: {zone: a}
labels:
pin: node-1
weight: 2
retry: {attempts: 1, backoff_s: 1}
failover: {resume: restart}
timeout_s: 5
enabled: false
deadlines: {start_within_s: 10, success_every_s: 1000000}
---
{name: set-at, kind: probe, schedule: {at: 2026-12-01T02:00:00.5+01:00}}
---
{name: set-every, kind: probe, schedule: {every_s: 60}, enabled: false}
---
{name: set-continuous, kind: probe, schedule: {continuous: true}, enabled: false}
---
name: set-backup
kind: backup
params: {source: {type: folder, path: /srv/x, shared: true}, destination: file:///srv/b, keep: 7}
"""


@pytest.mark.more
def test_nothing_differs_after_files_are_applied_nor_from_what_is_shown(rota: Rota, tmp_path: Path) -> None:
    (tmp_path / "whole.yaml").write_text(WHOLE)
    of_set = ("-f", str(tmp_path), "--set", "round", "--prune")
    assert rota("apply", *of_set).code == 0
    assert rota("diff", *of_set).out == "0 new, 0 changed, 0 deleted, 5 as in the files\n"
    names = [task["name"] for task in rota("tasks", "--set", "round", "--json").json["items"]]
    shown = "---\n".join(rota("show", name).out for name in names)
    assert rota("diff", "-f", "-", "--set", "round", "--prune", stdin=shown).code == 0
    (tmp_path / "whole.yaml").unlink()
    assert rota("apply", *of_set, "--allow-empty").code == 0
