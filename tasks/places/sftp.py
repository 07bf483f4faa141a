"""What SFTP servers need beyond fsspec: the key of the host, and files that appear whole, under a name that is new."""

from collections.abc import Mapping
from typing import Any


def sftp_options(options: Mapping[str, Any]) -> dict[str, Any]:
    r"""Return sshfs's options for a task's options. Raises `ValueError` without `host_key`: sshfs would trust any host.

    >>> sftp_options({"username": "rota", "host_key": "ssh-ed25519 AAAA"})
    {'username': 'rota', 'known_hosts': b'* ssh-ed25519 AAAA\n'}
    """
    key = str(options.get("host_key") or "").strip()
    if not key or "\n" in key:
        raise ValueError(
            'give the server\'s public key in `options`, as {"host_key": "ssh-ed25519 AAAA..."} '
            "(ssh-keyscan -t ed25519 HOST shows it)"
        )
    others = {name: value for name, value in options.items() if name != "host_key"}
    return {**others, "known_hosts": f"* {key}\n".encode()}


def rename_to_new(files: Any, path: str, new: str) -> bool:
    """Rename a file in sshfs's file system `files`. Returns False if there is a file `new`, which stays as it is."""
    from asyncssh.sftp import SFTPError
    from fsspec.asyn import sync

    async def rename() -> None:
        # sshfs's own `mv` replaces the target. This request of SFTP refuses to.
        async with files._pool.get() as channel:
            await channel.rename(path, new)

    try:
        sync(files.loop, rename)
    except SFTPError:
        files.invalidate_cache()
        if files.exists(new):
            return False
        raise
    return True
