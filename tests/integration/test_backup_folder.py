"""Archives of folders as other programs read them, and folders that come back with all that they had."""

import os
import shlex
import shutil
import stat
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from tasks.backup.encryption import BackupKeys, Identities, new_identity
from tasks.backup.kind import Backup
from tasks.backup.manifest import newest_backup
from tasks.backup.restore import restore_backup
from tasks.backup.tree import read_tree
from tasks.backup.verify import verify
from testkit.cluster import Cluster
from testkit.servers.object_store import object_store
from testkit.trees import OddTree, facts_of_tree
from tests.unit.tasks.backup.backups import backup_context

pytestmark = pytest.mark.integration

AS_ROOT = os.geteuid() == 0


def _unpacked(url: str, into: Path, *program: str, identity: Path | None = None) -> Path:
    """Unpack a backup as the how-to pages do: `age`, `zstd` and a program that knows tar, in a pipe."""
    into.mkdir()
    archives = " ".join(shlex.quote(str(path)) for path in sorted(Path(url).glob("*.tar.zst*")))
    read = f"zstd -dcq {archives}"
    if identity is not None:
        read = f"for each in {archives}; do age -d -i {shlex.quote(str(identity))} $each | zstd -dcq; done"
    script = f"({read}) | {shlex.join([*program, '-C', str(into)])}"
    subprocess.run(["bash", "-o", "pipefail", "-ec", script], check=True, capture_output=True)
    return into


needs_programs = pytest.mark.skipif(
    not (shutil.which("zstd") and shutil.which("tar")), reason="zstd or tar is not installed"
)

GNU_TAR = ("tar", "-xipf", "-", "--acls", "--xattrs", "--xattrs-include=*")
BSDTAR = ("bsdtar", "-xpf", "-", "--acls", "--xattrs", "--options", "read_concatenated_archives")
PUBLIC, PRIVATE = new_identity(None)
KEYS = BackupKeys(Identities.of_text(PRIVATE, "key.txt"))


@needs_programs
@pytest.mark.parametrize("seed", range(6))
def test_gnu_tar_and_a_restore_make_the_same_folder_as_there_was(tmp_path: Path, seed: int) -> None:
    OddTree(seed, as_root=AS_ROOT).make(tmp_path / "from")
    url = Backup().run(backup_context(tmp_path))["url"]
    there = facts_of_tree(tmp_path / "from", blocks=True)
    assert verify(url).problems == ()
    assert facts_of_tree(_unpacked(url, tmp_path / "by-tar", *GNU_TAR), blocks=True) == there
    restore_backup(url, str(tmp_path / "back"))
    assert facts_of_tree(tmp_path / "back", blocks=True) == there


@needs_programs
@pytest.mark.skipif(not shutil.which("bsdtar"), reason="bsdtar is not installed")
@pytest.mark.parametrize("seed", range(2))
def test_bsdtar_makes_the_same_folder_of_several_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(read_tree, "PACK_FILES", 25)
    OddTree(seed, as_root=AS_ROOT).make(tmp_path / "from")
    url = Backup().run(backup_context(tmp_path))["url"]
    made = _unpacked(url, tmp_path / "by-tar", *BSDTAR)
    assert _for_bsdtar(made) == _for_bsdtar(tmp_path / "from")


def _for_bsdtar(top: Path) -> dict[str, tuple[Any, ...]]:
    """The facts of a folder that bsdtar restores: not times before 1970, nor attributes with `=` in their names."""
    found = {}
    for path, (mode, user, group, time_ns, content, attributes) in facts_of_tree(top).items():
        kept = {name: value for name, value in attributes.items() if not name.startswith("user.a")}
        found[path] = (mode, user, group, time_ns if time_ns > 1 and path != "." else 0, content, kept)
    return found


@needs_programs
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("pack_files", [25, 50_000], ids=["in-packs", "in-one"])
def test_an_encrypted_folder_comes_back_from_each_destination(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack_files: int, seed: int
) -> None:
    monkeypatch.setattr(read_tree, "PACK_FILES", pack_files)
    OddTree(seed, as_root=AS_ROOT).make(tmp_path / "from")
    there = facts_of_tree(tmp_path / "from", blocks=True)
    with object_store() if seed == 0 else nullcontext() as store:
        copies: list[dict[str, Any]] = [{"destination": str(tmp_path / "far"), "copy": "now"}]
        if store is not None:
            copies.append({"destination": store.url("far"), "options": store.references})
        context = backup_context(tmp_path, copies=copies, encryption={"recipients": [PUBLIC]})
        context.secrets = {} if store is None else store.secrets
        result = Backup().run(context)
        assert (result["owed"], len(result["copies"])) == ([], len(copies))
        for number, url in enumerate((result["url"], *result["copies"])):
            options = store.options if store is not None and url.startswith("s3://") else None
            assert verify(url, options, keys=KEYS).problems == ()
            restore_backup(url, str(tmp_path / f"back-{number}"), options=options, keys=KEYS)
            assert facts_of_tree(tmp_path / f"back-{number}", blocks=True) == there
    if shutil.which("age"):
        (tmp_path / "key.txt").write_text(PRIVATE)
        made = _unpacked(result["url"], tmp_path / "by-tar", *GNU_TAR, identity=tmp_path / "key.txt")
        assert _for_gnu_tar(made) == _for_gnu_tar(tmp_path / "from")


def _for_gnu_tar(top: Path) -> dict[str, tuple[Any, ...]]:
    """The facts of a folder that GNU tar restores: one in several archives may get the setgid bit of its parent."""
    return {path: (facts[0] & ~stat.S_ISGID, *facts[1:]) for path, facts in facts_of_tree(top).items()}


@needs_programs
@pytest.mark.skipif(not AS_ROOT, reason="only root gives files to other users")
def test_another_user_restores_what_it_may_and_is_told_the_rest(tmp_path: Path) -> None:
    OddTree(1, as_root=True).make(tmp_path / "from")
    url = Backup().run(backup_context(tmp_path))["url"]
    for path in (tmp_path, *(above for above in tmp_path.parents if above.stat().st_uid == 0 and above != Path("/"))):
        path.chmod(path.stat().st_mode | 0o755)
    for path in (Path(url).parent.parent, Path(url).parent, Path(url), *Path(url).iterdir()):
        path.chmod(0o755)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    code = (
        "import sys; from tasks.backup.restore import restore_backup;"
        "print(*restore_backup(sys.argv[1], sys.argv[2]).remarks, sep=chr(10))"
    )
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", code)
    done = subprocess.run(
        [*as_nobody, url, tmp_path / "theirs" / "back"], capture_output=True, text=True, check=False, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    assert "owner and group: not restored for" in done.stdout
    assert "security.capability (Operation not permitted): not restored for" in done.stdout
    there, back = facts_of_tree(tmp_path / "from"), facts_of_tree(tmp_path / "theirs" / "back")
    assert [(facts[0], *facts[3:5]) for facts in back.values()] == [(facts[0], *facts[3:5]) for facts in there.values()]


_CHANGES = """
import os, random, sys
os.chdir(sys.argv[1])
draw = random.Random(7)

def change(folder, path, other):
    kind = draw.randrange(6)
    if kind == 0:
        open(path, "ab").write(b"more" * draw.randrange(5000))
    elif kind == 1:
        os.truncate(path, draw.randrange(9))
    elif kind == 2:
        os.unlink(path)
    elif kind == 3:
        os.replace(path, other)
    elif kind == 4:
        os.rename(folder, folder + "-away")
        os.makedirs(folder)
    else:
        os.unlink(path)
        os.symlink("/etc/shadow", path)

while True:
    folder = f"d{draw.randrange(9)}"
    try:
        change(folder, f"{folder}/f{draw.randrange(40)}", f"{folder}/f{draw.randrange(40)}")
    except OSError:
        pass
"""


def test_a_folder_that_changes_at_full_speed_is_backed_up_and_the_changes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_tree, "PACK_FILES", 100)
    top = tmp_path / "from"
    for folder in range(9):
        (top / f"d{folder}").mkdir(parents=True)
        for file in range(40):
            (top / f"d{folder}" / f"f{file}").write_bytes(b"x" * 10_000)
    (top / "log").write_bytes(bytes(100))
    changing = subprocess.Popen([sys.executable, "-c", _CHANGES, top])
    remarks: list[str] = []
    try:
        for token in range(1, 5):
            url = Backup().run(backup_context(tmp_path, token))["url"]
            assert verify(url).problems == ()
            restore_backup(url, str(tmp_path / f"back-{token}"))
            remarks += newest_backup(url).remarks
        assert changing.poll() is None
    finally:
        changing.kill()
        changing.wait()
    assert any(f"{top}/d" in remark for remark in remarks), remarks


@pytest.mark.more
def test_a_member_that_dies_between_packs_leaves_its_whole_packs_to_the_next(tmp_path: Path) -> None:
    """kill -9 of the node that backs up: another member makes the rest, and keeps the whole packs."""
    top = tmp_path / "from"
    for folder in range(130):
        (top / f"d{folder:03}").mkdir(parents=True)
        for file in range(1000):
            (top / f"d{folder:03}" / f"f{file:03}").touch()
    last_made = time.time()
    wait_for("the files are old enough to be known as unchanged", lambda: time.time() - last_made > 2.5, 10)
    with Cluster(tmp_path / "cluster") as cluster:
        cluster.start()
        cluster.wait_until_whole()
        to = tmp_path / "to"
        source = {"type": "folder", "path": str(top), "shared": True}
        cluster.register("uploads", kind="backup", params={"source": source, "destination": str(to), "level": 1})
        run = cluster.run("uploads")
        owner = cluster.wait_for_run(run, "running")["node"]
        wait_for("a pack is whole", lambda: list(to.glob("uploads/*/*.index.zst.whole.json")), 60)
        cluster.kill(owner)
        whole = {path.name.removesuffix(".whole.json"): path for path in to.glob("uploads/*/*.index.zst.whole.json")}
        inodes = {name: path.with_name(name).stat().st_ino for name, path in whole.items()}
        others = cluster.others(owner)
        done = cluster.wait_for_run(run, "succeeded", node=others[0], deadline_s=120)
        url = Path(done["result"]["url"])
        assert done["attempt"] == 2
        assert {name: (url / name).stat().st_ino for name in inodes} == inodes, "the whole packs were moved, not made"
        assert [path.parent for path in to.glob("uploads/*/*")] == [url] * len(list(url.iterdir()))
        cluster.restart(owner)
    assert verify(str(url)).problems == ()
    restore_backup(str(url), str(tmp_path / "back"))
    assert facts_of_tree(tmp_path / "back") == facts_of_tree(top)
