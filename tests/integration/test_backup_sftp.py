"""A backup to an SFTP server and back, on asyncssh's server on loopback, and on OpenSSH's."""

import asyncio
import getpass
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

asyncssh = pytest.importorskip("asyncssh", reason="the extra `sftp` is not installed")
pytest.importorskip("sshfs", reason="the extra `sftp` is not installed")

from node.cli.local import wait_for  # noqa: E402
from tasks.backup.kind import Backup  # noqa: E402
from tasks.backup.manifest import survey_url  # noqa: E402
from tasks.backup.params import BackupParams  # noqa: E402
from tasks.backup.restore import restore_backup  # noqa: E402
from tasks.backup.verify import verify  # noqa: E402  after the check that it is there
from tasks.places.place import BadDestination, Place  # noqa: E402
from testkit.fake_context import FakeContext  # noqa: E402

pytestmark = pytest.mark.integration

PASSWORD = "open-sesame"


class _Server(asyncssh.SSHServer):  # type: ignore[misc, name-defined]
    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return password == PASSWORD


@pytest.fixture
def options(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """fsspec's options for a server whose root is tmp_path / "served"."""
    (tmp_path / "served").mkdir()
    key = asyncssh.generate_private_key("ssh-ed25519")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> Any:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[key],
            server_factory=_Server,
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=bytes(tmp_path / "served")),
        )

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result(30)
    public = " ".join(key.export_public_key().decode().split()[:2])
    yield {"port": server.get_port(), "username": "rota", "password": PASSWORD, "host_key": public}

    async def close() -> None:
        server.close()
        await server.wait_closed()

    asyncio.run_coroutine_threadsafe(close(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)


def test_a_backup_goes_to_an_sftp_server_and_comes_back(tmp_path: Path, options: dict[str, Any]) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "big").write_bytes(bytes(range(256)) * 20_000)
    given = {
        "source": {"type": "folder", "path": str(tmp_path / "from")},
        "destination": "sftp://127.0.0.1/backups",
        "options": options | {"password": {"secret": "pw"}},
        "keep": 1,
    }
    for token in (1, 2):
        context = FakeContext(
            BackupParams.model_validate(given), tmp_path, task="nightly", token=token, secrets={"pw": PASSWORD}
        )
        result = Backup().run(context)
    url = "sftp://127.0.0.1/backups/nightly"
    assert [found.url for found in survey_url(url, options).complete] == [result["url"]]
    assert (result["removed"], verify(url, options).ok) == (1, True)
    restore_backup(url, str(tmp_path / "back"), options=options)
    assert (tmp_path / "back" / "big").read_bytes() == (tmp_path / "from" / "big").read_bytes()


def test_a_file_is_written_whole_and_never_over_another(options: dict[str, Any]) -> None:
    place = Place("sftp://127.0.0.1/backups", options)
    assert [place.write_new("deep/n", content) for content in (b"first", b"second")] == [True, False]
    assert (place.read("deep/n"), place.names("deep")) == (b"first", ["n"])
    place.write_whole("deep/n", b"third")
    assert (place.read("deep/n"), place.names("deep")) == (b"third", ["n"])


def test_a_server_with_another_key_is_refused(options: dict[str, Any]) -> None:
    other = " ".join(asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().split()[:2])
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        Place("sftp://127.0.0.1/backups", options | {"host_key": other}).read("x")
    with pytest.raises(BadDestination, match="give the server's public key"):
        Place("sftp://127.0.0.1/backups", {"username": "rota"})


SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


@pytest.fixture
def openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """fsspec's options for OpenSSH's server, which lets this user in by the key in its home."""
    if not Path(SSHD).exists():
        pytest.skip("OpenSSH's sshd is not installed (Debian: openssh-server)")
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    own, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    own.write_private_key(str(home / ".ssh" / "id_ed25519"))
    own.write_public_key(str(tmp_path / "authorized"))
    host.write_private_key(str(tmp_path / "host"))
    for path in (home / ".ssh" / "id_ed25519", tmp_path / "host"):
        path.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": tmp_path / "host",
        "AuthorizedKeysFile": tmp_path / "authorized",
        "StrictModes": "no",
        "PermitRootLogin": "yes",
        "PasswordAuthentication": "no",
        "UsePAM": "yes" if os.geteuid() == 0 else "no",  # without it, the account of root may be locked
        "PidFile": "none",
        "Subsystem": "sftp internal-sftp",
    }
    (tmp_path / "sshd_config").write_text("".join(f"{name} {value}\n" for name, value in lines.items()))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (tmp_path / "sshd.log").open("wb") as log:
        process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(tmp_path / "sshd_config")], stdout=log, stderr=log)
    try:

        def listens() -> bool:
            assert process.poll() is None, (tmp_path / "sshd.log").read_text()
            return "listening on" in (tmp_path / "sshd.log").read_text()

        wait_for("sshd listens", listens, 60)
        public = " ".join(host.export_public_key().decode().split()[:2])
        yield {"port": port, "username": getpass.getuser(), "host_key": public}
    finally:
        process.kill()
        process.wait()


@pytest.mark.more
def test_openssh_takes_backups_as_a_copy_and_gives_them_back(tmp_path: Path, openssh: dict[str, Any]) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "big").write_bytes(os.urandom(9 << 20))
    there = f"sftp://127.0.0.1{tmp_path}/served"
    for number, copy in enumerate(("now", "later"), 1):
        given = {
            "source": {"type": "folder", "path": str(tmp_path / "from")},
            "destination": str(tmp_path / "to"),
            "copies": [{"destination": there, "options": openssh, "copy": copy, "keep": 1}],
        }
        params = BackupParams.model_validate(given)
        result = Backup().run(FakeContext(params, tmp_path, task="nightly", run_id=f"r~{number}", token=number))
        assert (result["owed"], result["not_removed"]) == ([], [])
    found = survey_url(f"{there}/nightly", openssh)
    assert [(one.token, found.without) for one in found.complete] == [(2, ())]
    assert verify(f"{there}/nightly", openssh).ok
    restore_backup(f"{there}/nightly", str(tmp_path / "back"), options=openssh)
    assert (tmp_path / "back" / "big").read_bytes() == (tmp_path / "from" / "big").read_bytes()
    place = Place(f"{there}/files", openssh)
    assert [place.write_new("deep/n", content) for content in (b"first", b"second")] == [True, False]
    assert place.move("deep/n", "m", into=place.inside("moved"))
    assert (place.read("deep/n"), place.inside("moved").read("m")) == (None, b"first")
