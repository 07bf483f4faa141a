"""Encrypted backups: nothing plain at the destination, every change is noticed, and only the identity opens them."""

import errno
import hashlib
import io
import os
import random
import threading
from pathlib import Path
from typing import Any

import pyrage
import pytest
import zstandard
from pydantic import ValidationError

from tasks.backup import archive
from tasks.backup.encryption import BackupKeys, BadIdentity, Encryption, Identities, NoIdentity, new_identity
from tasks.backup.kind import Backup
from tasks.backup.manifest import FileEntry, newest_backup
from tasks.backup.objects import NewObjects, RestoreWatch, StoredObjects, remove_unnamed
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.verify import verify
from tasks.errors import MissingSecret
from tasks.places.place import Place
from tests.unit.tasks.backup.backups import backup_context, fill

PUBLIC, PRIVATE = new_identity(None)
OTHER_PUBLIC, OTHER_PRIVATE = new_identity(None)
MINE, OTHERS = (Identities.of_text(text, "key.txt") for text in (PRIVATE, OTHER_PRIVATE))
ENCRYPTION = Encryption((PUBLIC,))
SIZES = (0, 1, 64, (64 << 10) - 1, 64 << 10, (64 << 10) + 1, (1 << 20) - 1, (1 << 20) + 1, 3 << 20)


def _stored(place: Place, content: bytes, keys: list[Any] | None, piece: int = 1 << 20) -> FileEntry:
    with archive.storing(place, "a.zst.age" if keys else "a.zst", 3, archive.quiet, keys) as out:
        for at in range(0, len(content), piece):
            out.write(content[at : at + piece])
    return out.entry


def _read(place: Place, entry: FileEntry, identities: Identities | None) -> bytes:
    return b"".join(archive.stored_content(place, entry, archive.quiet, identities))


def _as_if_recorded(file: Path, entry: FileEntry) -> FileEntry:
    """The entry, as if the file had been recorded as it is now: then only age notices that it was changed."""
    spoilt = file.read_bytes()
    return entry.model_copy(update={"stored_bytes": len(spoilt), "sha256": hashlib.sha256(spoilt).hexdigest()})


@pytest.mark.parametrize("keys", [None, ENCRYPTION.keys()], ids=["plain", "encrypted"])
@pytest.mark.parametrize("size", SIZES)
def test_content_of_each_size_comes_back(tmp_path: Path, size: int, keys: list[Any] | None) -> None:
    content, place = random.Random(size).randbytes(size), Place(str(tmp_path))
    entry = _stored(place, content, keys, piece=100_000)
    assert _read(place, entry, MINE) == content
    packed = (tmp_path / entry.name).read_bytes()
    assert (entry.stored_bytes, entry.sha256) == (len(packed), hashlib.sha256(packed).hexdigest())
    if keys:
        packed = pyrage.decrypt(packed, list(MINE.keys))
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == content
    archive.check_stored(place, entry, archive.quiet)


def test_the_contents_checksum_of_an_earlier_build_is_checked(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    entry = _stored(place, b"content", None)
    told = [hashlib.sha256(content).hexdigest() for content in (b"content", b"another")]
    good, spoilt = (entry.model_copy(update={"content_sha256": text}) for text in told)
    assert _read(place, good, None) == b"content"
    with pytest.raises(archive.Damaged, match="the content differs"):
        _read(place, spoilt, None)


def test_a_changed_byte_in_any_region_is_noticed(tmp_path: Path) -> None:
    place, file = Place(str(tmp_path)), tmp_path / "a.zst.age"
    entry = _stored(place, random.Random(1).randbytes(200_000), ENCRYPTION.keys())
    good = file.read_bytes()
    head = good.index(b"\n--- ")
    regions = [
        0,
        10,
        23,
        30,
        head - 5,
        head + 10,
        head + 49,
        head + 60,
        head + 80,
        70_000,
        len(good) // 2,
        len(good) - 1,
    ]
    for at in regions:
        file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with pytest.raises(archive.Damaged):
            _read(place, entry, MINE)
        with pytest.raises((archive.Damaged, NoIdentity)):
            _read(place, _as_if_recorded(file, entry), MINE)
        with pytest.raises(archive.Damaged):
            archive.check_stored(place, entry, archive.quiet)


def test_a_file_that_was_cut_or_has_grown_is_noticed(tmp_path: Path) -> None:
    place, file = Place(str(tmp_path)), tmp_path / "a.zst.age"
    entry = _stored(place, random.Random(1).randbytes(200_000), ENCRYPTION.keys())
    good = file.read_bytes()
    # Also between two pieces of 64 KiB, which age encrypts one by one.
    head = good.index(b"\n--- ") + 5 + 43 + 1
    for spoilt in (good[:-1], good[:-20], good[: head + 16 + (64 << 10) + 16], good[:100], b"", good + b"x"):
        file.write_bytes(spoilt)
        with pytest.raises(archive.Damaged):
            _read(place, entry, MINE)
        with pytest.raises(archive.Damaged):
            _read(place, _as_if_recorded(file, entry), MINE)


def test_another_identity_or_none_opens_nothing(tmp_path: Path) -> None:
    place = Place(str(tmp_path))
    entry = _stored(place, b"content", ENCRYPTION.keys())
    with pytest.raises(NoIdentity, match=r"a\.zst\.age cannot be decrypted by the identity that was given"):
        _read(place, entry, OTHERS)
    with pytest.raises(NoIdentity, match=r"a\.zst\.age is encrypted"):
        _read(place, entry, None)
    both = _stored(place, b"content", Encryption((PUBLIC, OTHER_PUBLIC)).keys())
    assert _read(place, both, OTHERS) == b"content"


class _Full(io.BytesIO):
    """A file on a disk that is full."""

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("keys", [None, ENCRYPTION.keys()], ids=["plain", "encrypted"])
def test_an_error_of_the_storage_reaches_the_source(keys: list[Any] | None) -> None:
    writer = archive.Writer("a.zst", _Full(), 3, archive.quiet, keys)
    with pytest.raises(OSError, match="No space left on device"):
        for _ in range(100):
            writer.write(os.urandom(1 << 20))
    writer.abandon()


@pytest.mark.parametrize("keys", [None, ENCRYPTION.keys()], ids=["plain", "encrypted"])
def test_a_source_that_fails_leaves_no_thread(tmp_path: Path, keys: list[Any] | None) -> None:
    before = threading.active_count()
    with pytest.raises(RuntimeError), archive.storing(Place(str(tmp_path)), "a.zst", 3, archive.quiet, keys) as out:
        out.write(b"x" * 1000)
        raise RuntimeError("the source failed")
    assert threading.active_count() == before


@pytest.mark.parametrize("identities", [None, MINE], ids=["plain", "encrypted"])
def test_a_reader_that_stops_leaves_no_thread(tmp_path: Path, identities: Identities | None) -> None:
    before = threading.active_count()
    entry = _stored(Place(str(tmp_path)), os.urandom(30 << 20), ENCRYPTION.keys() if identities else None)
    chunks = archive.stored_content(Place(str(tmp_path)), entry, archive.quiet, identities)
    next(iter(chunks))
    del chunks
    assert threading.active_count() == before


def _folder(tmp_path: Path) -> Path:
    source = tmp_path / "from"
    source.mkdir()
    fill(source)
    (source / "marked.txt").write_text("the marked content")
    os.mkfifo(source / "marked-name")
    return source


def test_nothing_of_the_content_is_readable_at_the_destination(tmp_path: Path) -> None:
    source = _folder(tmp_path)
    ctx = backup_context(tmp_path, encryption={"recipients": [PUBLIC]})
    result = Backup().run(ctx)
    assert result["remarks"] == 1
    for file in (tmp_path / "to").rglob("*"):
        assert not file.is_file() or b"marked" not in file.read_bytes()
    stored = newest_backup(result["url"])
    assert [file.name for file in stored.files] == ["folder.tar.zst.age"]
    assert stored.remarks == ()
    assert (
        "marked-name was left out" in StoredObjects(stored, None, RestoreWatch(), BackupKeys(MINE)).manifest.remarks[0]
    )

    restored = restore_backup(result["url"], str(tmp_path / "back"), keys=BackupKeys(MINE))
    assert (tmp_path / "back/marked.txt").read_text() == (source / "marked.txt").read_text()
    assert "marked-name was left out" in restored.remarks[0]


def test_restoring_says_which_identity_is_missing(tmp_path: Path) -> None:
    _folder(tmp_path)
    url = Backup().run(backup_context(tmp_path, encryption={"recipients": [PUBLIC]}))["url"]
    to = f"is encrypted to {PUBLIC}"
    for keys, said in (
        (None, f"{to}: give the identity of one of these recipients by --identity FILE"),
        (BackupKeys(OTHERS), f"{to}, cannot be decrypted by the identity that was given"),
        (BackupKeys(passphrase="pass"), f"{to}, and holds no identity that a passphrase wraps: give --identity FILE"),
    ):
        with pytest.raises(NoIdentity) as refused:
            restore_backup(url, str(tmp_path / "back"), keys=keys)
        assert said in str(refused.value).replace("which ", "")
    assert not (tmp_path / "back").exists()
    with pytest.raises(NoIdentity):
        verify(url, keys=BackupKeys(OTHERS))


def test_without_an_identity_the_stored_files_are_verified(tmp_path: Path) -> None:
    _folder(tmp_path)
    url = Backup().run(backup_context(tmp_path, encryption={"recipients": [PUBLIC]}))["url"]
    found = verify(url)
    assert found.ok and "only the checksums of the stored files were checked" in found.remarks[0]
    found = verify(url, keys=BackupKeys(MINE))
    assert found.ok and "was left out" in found.remarks[0] and found.read_bytes == newest_backup(url).stored_bytes
    file = Path(url) / "folder.tar.zst.age"
    file.write_bytes(file.read_bytes()[:-1])
    assert not verify(url).ok and not verify(url, keys=BackupKeys(MINE)).ok


def test_facts_of_an_object_are_sealed_also_in_its_record(tmp_path: Path) -> None:
    dead, mine = tmp_path / "1", tmp_path / "2"
    first = NewObjects(Place(str(dead)), 3, archive.quiet, ENCRYPTION)
    with first.writing("a.zst", whole=True) as out:
        out.write(b"content")
        out.about(remarks=("marked",))
    assert sorted(path.name for path in dead.iterdir()) == ["a.zst.age", "a.zst.age.whole.json"]
    assert b"marked" not in (dead / "a.zst.age.whole.json").read_bytes()
    assert first.entries[0].remarks == ("marked",)

    second = NewObjects(Place(str(mine)), 3, archive.quiet, ENCRYPTION)
    second.adopt([Place(str(dead))])
    assert list(second.kept) == ["a.zst"]
    second.keep("a.zst")
    remove_unnamed(Place(str(mine)), second.entries)
    (entry,) = second.entries
    assert (entry.name, entry.plain_name, entry.remarks) == ("a.zst.age", "a.zst", ())
    assert entry.sealed and "marked" in MINE.unseal(entry.sealed, "a.zst")
    assert [path.name for path in mine.iterdir()] == ["a.zst.age"]


@pytest.mark.parametrize("now", [None, Encryption((OTHER_PUBLIC,))], ids=["no more", "to others"])
def test_an_object_that_is_encrypted_otherwise_is_made_again(tmp_path: Path, now: Encryption | None) -> None:
    first = NewObjects(Place(str(tmp_path / "1")), 3, archive.quiet, ENCRYPTION)
    with first.writing("a.zst", whole=True) as out:
        out.write(b"content")
    second = NewObjects(Place(str(tmp_path / "2")), 3, archive.quiet, now)
    second.adopt([Place(str(tmp_path / "1"))])
    assert second.kept == {}


def test_what_the_next_backup_reads_is_encrypted_to_the_members_own_key_too(tmp_path: Path) -> None:
    out = NewObjects(Place(str(tmp_path)), 3, archive.quiet, Encryption((PUBLIC,), metadata=OTHERS))
    with out.writing("next.zst", for_next=True) as writer:
        writer.write(b"next")
    with out.writing("content.zst") as writer:
        writer.write(b"content")
    content, following = out.entries
    assert _read(Place(str(tmp_path)), following, OTHERS) == _read(Place(str(tmp_path)), following, MINE) == b"next"
    with pytest.raises(NoIdentity):
        _read(Place(str(tmp_path)), content, OTHERS)


@pytest.mark.parametrize(
    ("encryption", "said"),
    [
        ({"recipients": []}, "at least 1 item"),
        ({"recipients": ["age1nonsense"]}, "'age1nonsense' is not a recipient of age"),
        ({"recipients": [PRIVATE.strip()]}, "this is an identity, a private key: give its public key"),
        ({"recipients": [PUBLIC], "identity": PRIVATE}, "this is an identity without a passphrase"),
        ({"recipients": [PUBLIC], "identity": "something"}, "not an identity that a passphrase wraps"),
        ({}, "Field required"),
    ],
)
def test_params_that_cannot_encrypt_are_refused(encryption: dict[str, Any], said: str) -> None:
    params = {"source": {"type": "folder", "path": "/a", "shared": True}, "destination": "/b", "encryption": encryption}
    with pytest.raises(ValidationError) as refused:
        BackupParams.model_validate(params)
    messages = [str(error["msg"]) for error in refused.value.errors()]
    assert said in messages[0]
    assert PRIVATE.strip() not in messages[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "contains no identity"),
        (f"# public key: {PUBLIC}", "contains no identity"),
        (PUBLIC, "is not an identity file of age"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nnonsense", "is not an SSH private key that age can use"),
        ("-----BEGIN AGE ENCRYPTED FILE-----\nx", "is wrapped by a passphrase"),
    ],
    ids=["empty", "comment", "public", "ssh", "wrapped"],
)
def test_a_text_that_is_no_identity_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadIdentity, match=rf"^key\.txt {said}"):
        Identities.of_text(text, "key.txt")


@pytest.mark.more
def test_a_passphrase_opens_the_identity_in_the_backup(tmp_path: Path) -> None:
    _folder(tmp_path)
    public, wrapped = new_identity("a passphrase")
    url = Backup().run(backup_context(tmp_path, encryption={"recipients": [public], "identity": wrapped}))["url"]
    assert verify(url, keys=BackupKeys(passphrase="a passphrase")).ok
    with pytest.raises(BadIdentity, match="the passphrase does not open the identity in"):
        verify(url, keys=BackupKeys(passphrase="another"))
    with pytest.raises(NoIdentity, match="or the passphrase of the backup by --passphrase-file FILE"):
        restore_backup(url, str(tmp_path / "back"))


def test_a_member_without_the_secret_of_metadata_makes_no_backup(tmp_path: Path) -> None:
    _folder(tmp_path)
    encryption = {"recipients": [PUBLIC], "metadata": {"secret": "absent"}}
    with pytest.raises(MissingSecret):
        Backup().run(backup_context(tmp_path, encryption=encryption))
    assert not list((tmp_path / "to").rglob("manifest.json"))
