"""Crontabs as tasks."""

import re

import pytest
from pydantic import TypeAdapter

from node.cli.crontab import tasks_of_crontab
from tasks.command.kind import CommandParams
from tasks.definition.spec import Spec

CRONTAB = r"""
# m h dom mon dow command
SHELL=/bin/bash
PATH = "/usr/local/bin:/usr/bin"
HOME=/srv
MAILTO=admin@example.org
17 *	* * *	cd / && run-parts --report /etc/cron.hourly
5 4 * * mon-fri  /opt/report.sh --day=$(date +\%F) > /dev/null 2>&1
CRON_TZ=Europe/Paris
@weekly sudo -u backup nice -n 10 /opt/report.sh --week
"""


def test_each_line_becomes_a_task_that_is_valid() -> None:
    tasks = tasks_of_crontab(CRONTAB, timezone="America/New_York").tasks
    TypeAdapter(list[Spec]).validate_python(tasks)
    for task in tasks:
        CommandParams.model_validate(task["params"])
    assert [task["name"] for task in tasks] == ["run-parts-b66353", "report-84734f", "report-43c1fa"]
    assert tasks[1]["params"] == {
        "argv": ["/bin/bash", "-c", "/opt/report.sh --day=$(date +%F) > /dev/null 2>&1"],
        "env": {"PATH": "/usr/local/bin:/usr/bin", "HOME": "/srv"},
        "cwd": "/srv",
    }
    assert [task["schedule"]["timezone"] for task in tasks] == ["America/New_York"] * 2 + ["Europe/Paris"]
    assert [task["schedule"]["cron"] for task in tasks] == ["17 * * * *", "5 4 * * mon-fri", "@weekly"]
    assert all(task["retry"] == {"attempts": 1} for task in tasks), "cron starts a command once"


SYSTEM = "0 1 * * * root /opt/a\n0 2 * * * www-data /opt/b\n0 3 * * * root\n0 4 * * * 1st /opt/d\n"


def test_the_tasks_of_a_system_s_crontab_run_as_their_users_if_members_allow_them() -> None:
    found = tasks_of_crontab(SYSTEM, timezone="UTC", system=True, node="node-1", run_as=("deploy", "www-data"))
    TypeAdapter(list[Spec]).validate_python(found.tasks)
    assert [(task["run_as"], task.get("enabled", True), task["group"]) for task in found.tasks] == [
        ("root", False, {"node": "node-1"}),
        ("www-data", True, {"node": "node-1"}),
    ]
    assert [number for number, _ in found.notes] == [1, 3, 4]
    assert "disabled: it runs as root, and ROTA_RUN_AS names deploy, www-data. Add root to" in found.notes[0][1]
    assert "1st is not the name of a user" in found.notes[2][1]
    nobody = tasks_of_crontab(SYSTEM, timezone="UTC", system=True)
    assert [task["enabled"] for task in nobody.tasks] == [False, False]
    assert "ROTA_RUN_AS is not given" in nobody.notes[0][1]


def test_a_task_keeps_its_name_when_other_lines_are_added_or_moved() -> None:
    lines = [
        "5 4 * * * /opt/report.sh --day",
        "5 4 * * * /opt/report.sh --week",
        "6 4 * * * /opt/report.sh --day",
        "0 1 * * * deploy /opt/a",
        "0 1 * * * postgres /opt/a",
    ]

    def names(*given: str, system: bool = False) -> list[str]:
        return [task["name"] for task in tasks_of_crontab("\n".join(given), timezone="UTC", system=system).tasks]

    alone = [*(names(line)[0] for line in lines[:3]), *(names(line, system=True)[0] for line in lines[3:])]
    assert len(set(alone)) == 5
    assert names(*lines[2::-1]) == alone[2::-1]
    assert names(*lines[3:], system=True) == alone[3:]
    assert names(lines[1], lines[0].replace(" ", "\t  ", 3), lines[0]) == [alone[1], alone[0], f"{alone[0]}-2"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("@reboot /opt/a", "@reboot has no meaning in a cluster"),
        ("@hourli /opt/a", "@hourli is not a name that cron knows"),
        ("0 1 * *", "too few fields"),
        ("0 25 * * * /opt/a", "does not parse"),
        ("0 1 * * * mail -s x y%hello", "begins a standard input"),
        (
            "0 1 * * * root cd / && /opt/a",
            "begins with root, which is a user's name: for the crontab of a system, give",
        ),
        ("MAILTO=root", "the output is in each run's log"),
    ],
)
def test_what_cannot_be_a_task_is_said_with_its_line(line: str, said: str) -> None:
    found = tasks_of_crontab(f"# one\n{line}\n", timezone="UTC")
    assert found.tasks == []
    [(number, note)] = found.notes
    assert number == 2
    assert said in note


def test_an_unknown_time_zone_in_it_is_said() -> None:
    [(_, note)] = tasks_of_crontab("CRON_TZ=Mars/Base\n0 1 * * * /opt/a", timezone="UTC").notes
    assert "Mars/Base" in note


def test_tz_is_for_the_commands_and_not_for_the_times() -> None:
    found = tasks_of_crontab("TZ=Asia/Tokyo\n0 1 * * * /opt/a", timezone="Europe/Paris")
    assert found.tasks[0]["schedule"]["timezone"] == "Europe/Paris"
    assert found.tasks[0]["params"]["env"] == {"TZ": "Asia/Tokyo"}
    assert "TZ is for the commands only" in found.notes[0][1]


def test_the_crontab_of_a_user_is_not_that_of_a_system() -> None:
    found = tasks_of_crontab("0 1 * * * /opt/a --all\n", timezone="UTC", system=True)
    assert found.tasks == []
    assert "/opt/a is not a user" in found.notes[0][1]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )", "run-parts"),
        ("if [ -x /usr/share/checkarray ]; then /usr/share/checkarray --all; fi", "checkarray"),
        ("command -v sa1 > /dev/null && sa1 1 1", "sa1"),
        ("(cd /srv; ./sync.sh) >/dev/null 2>&1", "sync"),
        ("/usr/bin/flock -n /tmp/lock /opt/locked.sh", "locked"),
        (". /etc/profile; /opt/report.sh", "report"),
        ("MODE=fast /opt/report.py", "report"),
        ("root -b -q fit.C", "root"),
        ("cd /srv", "task"),
    ],
)
def test_a_task_is_named_by_what_its_line_runs(command: str, name: str) -> None:
    [task] = tasks_of_crontab(f"0 1 * * * {command}", timezone="UTC").tasks
    assert re.fullmatch(f"{name}-[0-9a-f]{{6}}", task["name"])
