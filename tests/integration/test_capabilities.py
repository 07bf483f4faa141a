"""What a worker keeps of its node's capabilities, and what the programs have that it starts."""

import os
import shutil
import subprocess
import sys

import pytest

WORKER = """
import os, subprocess, sys
from node.execution.linux import gain_no_rights, keep_capabilities

here = os.open(".", os.O_PATH)
gain_no_rights()
keep_capabilities(["DAC_READ_SEARCH"])
program = "import os, sys; print(os.readlink(sys.argv[1])); print(open('/proc/self/status').read())"
sys.exit(subprocess.run([sys.executable, "-c", program, f"/proc/{os.getpid()}/fd/{here}"], pass_fds=()).returncode)
"""

NEEDED = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives other users capabilities"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv(1) is not there"),
]


@pytest.mark.parametrize("user", ["0", pytest.param("65534", marks=NEEDED)])
def test_a_program_opens_what_its_worker_holds_open_and_has_no_capability_more(user: str) -> None:
    """A service of an ordinary user with AmbientCapabilities: its JVM had fewer than the worker, and was refused."""
    become = [
        *("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"),
        *("--inh-caps=+dac_read_search,+kill", "--ambient-caps=+dac_read_search,+kill"),
    ]
    done = subprocess.run(
        [*(become if user != "0" else ()), sys.executable, "-c", WORKER], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == os.getcwd()  # noqa: PTH109  as the kernel names it
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff"))
    assert int(effective, 16) & ~(1 << 2) == 0
