"""deploy/systemd/: the unit is valid, shuts what it says, and names settings that there are."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from node.app.config import load_config
from node.app.daemon import STOP_S
from node.execution import cgroup
from node.settings.table import unknown_settings

UNIT = Path(__file__).parents[2] / "deploy/systemd/rota.service"
ENV = UNIT.with_name("node.env")

EXPOSURE_MAX = 3.0
"""What `systemd-analyze security` gives it, of 10; a service without any limits has 9.6."""


def service() -> configparser.SectionProxy:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    return unit["Service"]


def settings(text: str) -> dict[str, str]:
    return dict(re.findall(r"^#?(ROTA_[A-Z_]+)=(.*)$", text, re.MULTILINE))


def test_its_settings_make_a_node(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 32)
    (tmp_path / "token").write_text("t" * 32)
    given = service()["Environment"].replace("/run/credentials/%n", str(tmp_path))
    assert "%" not in given, "%d, for one, is known since systemd 251"
    own = dict(word.split("=", 1) for word in given.split())
    env = settings(ENV.read_text()) | own | {"ROTA_DATA": str(tmp_path)}
    assert unknown_settings(env) == []
    assert load_config(env).node == "node-1"


def test_the_node_has_time_to_hand_its_runs_over() -> None:
    assert float(service()["TimeoutStopSec"].removesuffix("s")) > STOP_S
    assert service()["KillMode"] == "mixed", "SIGTERM to a worker would fail its run"


def test_the_machine_survives_what_tasks_do() -> None:
    assert service()["LimitCORE"] == "0", "a core dump would hold secrets"
    assert service()["MemoryMax"].endswith("%")
    assert 1_000 <= int(service()["TasksMax"]) < 4_194_304
    assert service()["Delegate"] == "yes"
    assert service()["DelegateSubgroup"] == cgroup.NODE, (
        "no process can be started in a group that has controllers below"
    )
    assert "ProtectControlGroups" not in service(), "it makes what is delegated read-only"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there, as it would be installed."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: the unit is not checked by systemd")
    file = tmp_path / "rota.service"
    program = Path(sys.executable).with_name("rota")
    text = UNIT.read_text().replace("/opt/rota/bin/rota", str(program))
    if _systemd_version() < 254:
        text = re.sub(r"(?m)^DelegateSubgroup=.*$", "", text)  # a warning at each start there, as the unit says
    file.write_text(text)
    return file


def _systemd_version() -> int:
    said = subprocess.run(["systemd-analyze", "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"\d+", said)[0])


def test_systemd_takes_it(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_it_may_do_little(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={int(EXPOSURE_MAX * 10)}", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
