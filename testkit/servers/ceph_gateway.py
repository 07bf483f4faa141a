"""Ceph's S3 API on loopback: a monitor, a store in memory and a gateway (Debian: radosgw, ceph-mon, ceph-osd).

    python -m testkit.servers.ceph_gateway

prints the endpoint, and runs until it is interrupted. ROTA_TEST_S3=ENDPOINT makes the tests of S3 use it, or any other
server that knows the key and the secret of `testkit.servers.object_store`.
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from testkit.servers.object_store import KEY, SECRET

PROGRAMS: Final = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "ceph-authtool", "monmaptool")
"""What has to be installed."""

_DEADLINE_S: Final = 120.0

_CONFIG: Final = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{monitor}]
mon initial members = a
public addr = 127.0.0.1
public network = 127.0.0.0/8
run dir = {folder}
admin socket =
log file = {folder}/$name.log
keyring = {folder}/keyring
mon data = {folder}/mon
mon data avail warn = 1
mon data avail crit = 0
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 8589934592
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
debug ms = 0
[client.rgw.a]
rgw frontends = beast endpoint=127.0.0.1:{gateway}
rgw data = {folder}
"""


def is_installed() -> bool:
    """Whether all programs are there."""
    return all(map(shutil.which, PROGRAMS))


@contextmanager
def ceph_gateway(folder: Path) -> Iterator[str]:
    """Run the servers in a new folder until the block ends. Yields the endpoint, whose user has `KEY` and `SECRET`."""
    folder.mkdir(parents=True)
    about = {"fsid": uuid.uuid4(), "monitor": _free_port(), "gateway": _free_port(), "folder": folder}
    (folder / "ceph.conf").write_text(_CONFIG.format(**about))
    environ = {**os.environ, "CEPH_CONF": str(folder / "ceph.conf")}
    running: list[subprocess.Popen[bytes]] = []

    def run(*argv: str) -> None:
        done = subprocess.run(argv, env=environ, cwd=folder, capture_output=True, timeout=_DEADLINE_S, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr.decode()}"

    def start(*argv: str) -> None:
        with (folder / f"{argv[0]}.out").open("wb") as out:
            running.append(subprocess.Popen([*argv, "-f"], env=environ, cwd=folder, stdout=out, stderr=out))

    try:
        all_of = [word for daemon in ("mon", "osd", "mgr") for word in ("--cap", daemon, "allow *")]
        for name in ("mon.", "client.admin", "osd.0", "client.rgw.a"):
            create = () if (folder / "keyring").exists() else ("--create-keyring",)
            run("ceph-authtool", "keyring", *create, "--gen-key", "-n", name, *all_of)
        address = f"[v2:127.0.0.1:{about['monitor']}]"
        run("monmaptool", "--create", "--fsid", str(about["fsid"]), "--addv", "a", address, "monmap")
        run("ceph-mon", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "keyring")
        start("ceph-mon", "-i", "a")
        osd = str(uuid.uuid4())
        run("ceph", "osd", "new", osd, "0")
        (folder / "osd").mkdir()
        run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        start("ceph-osd", "-i", "0")
        user = ["--uid=rota", "--display-name=rota", f"--access-key={KEY}", f"--secret-key={SECRET}"]
        run("radosgw-admin", "user", "create", *user)
        start("radosgw", "-n", "client.rgw.a")
        endpoint = f"http://127.0.0.1:{about['gateway']}"
        _wait_for(endpoint)
        yield endpoint
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def _wait_for(endpoint: str) -> None:
    end_s = time.monotonic() + _DEADLINE_S
    while True:
        try:
            urllib.request.urlopen(endpoint, timeout=10).close()
        except OSError:
            assert time.monotonic() < end_s, f"{endpoint} does not answer"
            time.sleep(0.2)
        else:
            return


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def main() -> None:
    """Run the servers until SIGINT or SIGTERM."""
    with tempfile.TemporaryDirectory(prefix="rota-ceph-") as folder, ceph_gateway(Path(folder) / "ceph") as endpoint:
        print(endpoint, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
