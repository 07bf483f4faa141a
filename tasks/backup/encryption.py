"""Encryption of backups in the format of age, so that the programs `age` and `rage` decrypt them too.

A task names recipients, which are public keys. Only who restores needs an identity, which is the private key. The
objects of an encrypted backup are encrypted to the recipients as a stream. The manifest stays readable, since members
without an identity list backups and remove old ones. The fields of the manifest that tell of the content, such as the
names of files and tables, are encrypted too (*sealed*), and are in the manifest as text.
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import IO, Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from tasks.backup.flow import Flow
from tasks.backup.manifest import EncryptionNote, FileEntry, Manifest, controls_shown
from tasks.errors import Failed
from tasks.secret import Reference

_ARMOR: Final = "-----BEGIN AGE ENCRYPTED FILE-----"
_PRIVATE_KEY: Final = "AGE-SECRET-KEY-"
_PUBLIC_FIELDS: Final = {"name", "size_bytes", "stored_bytes", "sha256", "mode", "uid", "gid"}
"""The fields of an encrypted object's entry that stay readable. All others tell of the content."""

_PRIVATE_OF_MANIFEST: Final = {"remarks"}


class NoIdentity(Failed):
    """A backup is encrypted, and no identity was given that decrypts it."""


class WrongKey(Exception):
    """No identity fits any recipient of an encrypted file."""


class Altered(Exception):
    """An encrypted file was changed, or its end is missing."""


class BadIdentity(Failed):
    """A text is not an identity of age, or the passphrase does not decrypt it."""


def _checked_recipient(text: str) -> str:
    if _PRIVATE_KEY in text:
        # The value must not be in the message: it is a private key.
        raise ValueError("this is an identity, a private key: give its public key (`age-keygen -y FILE` prints it)")
    try:
        _recipient(text)
    except ValueError as error:
        raise ValueError(
            f"{text!r} is not a recipient of age ({error}): give the public key, which begins with age1, ssh-ed25519 "
            "or ssh-rsa"
        ) from None
    return text


def _checked_wrapped(text: str) -> str:
    if _PRIVATE_KEY in text:
        raise ValueError(
            "this is an identity without a passphrase: `rota backup key --passphrase-file FILE` makes a wrapped one"
        )
    if not text.strip().startswith(_ARMOR):
        raise ValueError(f"not an identity that a passphrase wraps: it begins with {_ARMOR}")
    return text


RecipientText = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_checked_recipient)]


class EncryptionParams(BaseModel):
    """To whom backups are encrypted. Members that back up need no private key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    recipients: list[RecipientText] = Field(
        min_length=1,
        max_length=20,
        description="Public keys of age or SSH; each of their identities can decrypt the backups",
        examples=[["age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"]],
    )
    identity: Annotated[str, Field(max_length=16_384), AfterValidator(_checked_wrapped)] | None = Field(
        default=None,
        description="The identity of one of the recipients, wrapped by a passphrase (`rota backup key "
        "--passphrase-file FILE` makes it). It is kept in each backup, so that the passphrase suffices to restore",
    )
    metadata: Reference | None = Field(
        default=None,
        description="A secret that members which back up hold: an identity of age. What the next backup has to read of "
        "this one is encrypted to it, too; the content is not",
    )


@dataclass(frozen=True)
class Encryption:
    """How an attempt encrypts."""

    #: The recipients' public keys.
    recipients: tuple[str, ...]
    #: The identity that a passphrase wraps; None: there is none.
    wrapped: str | None = None
    #: The identity that members which back up hold, for what the next backup reads; None: they hold none.
    metadata: "Identities | None" = None

    @classmethod
    def of(cls, params: EncryptionParams | None, secret: Callable[[Any], str]) -> "Encryption | None":
        """Return the encryption that params describe; None for none. Raises `MissingSecret` and `BadIdentity`."""
        if params is None:
            return None
        held = None if params.metadata is None else Identities.of_text(secret(params.metadata), "encryption.metadata")
        return cls(tuple(params.recipients), params.identity, held)

    @property
    def note(self) -> EncryptionNote:
        """The manifest's record of the encryption."""
        return EncryptionNote(recipients=self.recipients, identity=self.wrapped)

    @property
    def tools(self) -> dict[str, str]:
        """The version of the library, for the manifest."""
        return {"pyrage": version("pyrage")}

    def keys(self, *, for_next: bool = False) -> list[Any]:
        """Return the library's recipients. `for_next`: the next backup has to read it, so add the members' own key."""
        found = [_recipient(text) for text in self.recipients]
        return found + (self.metadata.public() if for_next and self.metadata is not None else [])

    def seal(self, text: str, *, for_next: bool = False) -> str:
        """Return a small text encrypted, as text. `Identities.unseal` is the inverse."""
        import pyrage  # not at the top of the module: a node imports this module, and encrypts nothing

        sealed: bytes = pyrage.encrypt(text.encode(), self.keys(for_next=for_next), armored=True)
        return sealed.decode()

    def seal_entry(self, entry: FileEntry) -> FileEntry:
        """Return the entry of an encrypted object with the fields that tell of the content sealed."""
        if entry.sealed is not None:
            return entry  # another attempt wrote it
        private = entry.model_dump_json(exclude=_PUBLIC_FIELDS | {"sealed"}, exclude_defaults=True)
        sealed = None if private == "{}" else self.seal(private)
        public = entry.model_dump(include=_PUBLIC_FIELDS)
        return FileEntry(**public | {"sealed": sealed})

    def seal_manifest(self, manifest: Manifest) -> Manifest:
        """Return a manifest, whose entries are sealed, with its own fields that tell of the content sealed."""
        private = manifest.model_dump_json(include=_PRIVATE_OF_MANIFEST)
        plain = dict.fromkeys(_PRIVATE_OF_MANIFEST, ())
        return manifest.model_copy(update={**plain, "encryption": self.note, "sealed": self.seal(private)})


@dataclass(frozen=True)
class Identities:
    """Private keys that decrypt backups."""

    #: The library's identities.
    keys: tuple[Any, ...]

    @classmethod
    def of_text(cls, text: str, name: str, passphrase: str | None = None) -> "Identities":
        """Read the text of an identity file: identities of age, one a line, or an SSH private key.

        If the file is encrypted by a passphrase, `passphrase` is needed. `name` is used in errors, which never contain
        the text. Raises `BadIdentity`.
        """
        import pyrage

        if text.lstrip().startswith(_ARMOR):
            if passphrase is None:
                raise BadIdentity(f"{name} is wrapped by a passphrase: give it by --passphrase-file")
            return cls.of_text(_unwrapped(text, passphrase, name), name)
        if "PRIVATE KEY-----" in text:
            try:
                return cls((pyrage.ssh.Identity.from_buffer(text.encode()),))
            except pyrage.IdentityError as error:
                raise BadIdentity(f"{name} is not an SSH private key that age can use: {error}") from None
        lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
        try:
            found = tuple(pyrage.x25519.Identity.from_str(line) for line in lines)
        except pyrage.IdentityError as error:
            raise BadIdentity(f"{name} is not an identity file of age: {error}") from None
        if not found:
            raise BadIdentity(f"{name} contains no identity: it has a line that begins with {_PRIVATE_KEY}")
        return cls(found)

    @property
    def text(self) -> str:
        """The identities as an identity file of age has them. Raises `BadIdentity` for SSH keys."""
        if any(not hasattr(key, "to_public") for key in self.keys):
            raise BadIdentity("an SSH key cannot be kept for a server that recovers: give an identity of age")
        return "\n".join(map(str, self.keys))

    def public(self) -> list[Any]:
        """Return the library's recipients of these identities. SSH keys are left out, which do not tell theirs."""
        return [key.to_public() for key in self.keys if hasattr(key, "to_public")]

    def unseal(self, sealed: str, where: str) -> str:
        """Return the text that was sealed. `where` is used in errors. Raises `NoIdentity`."""
        import pyrage

        try:
            text: bytes = pyrage.decrypt(sealed.encode(), list(self.keys))
        except pyrage.DecryptError as error:
            raise NoIdentity(f"{where} cannot be decrypted by the identity that was given: {error}") from None
        return text.decode()


@dataclass(frozen=True)
class BackupKeys:
    """What a caller gives to open encrypted backups: identities, or the passphrase that wraps one in the backup."""

    #: Identities, if there are any.
    identities: Identities = Identities(())
    #: The passphrase.
    passphrase: str | None = None

    def identities_for(self, manifest: Manifest) -> Identities:
        """Return the identities for an encrypted backup. Raises `NoIdentity` and `BadIdentity` if none can fit."""
        assert manifest.encryption is not None, "the backup is not encrypted"
        return self.identities_of(manifest.encryption, manifest.url)

    def identities_of(self, note: EncryptionNote, url: str) -> Identities:
        """Return the identities for what is encrypted at `url`. Raises `NoIdentity` and `BadIdentity`."""
        if self.identities.keys:
            return self.identities
        to = f"{url} is encrypted to {', '.join(note.recipients)}"
        if self.passphrase is None:
            also = "" if note.identity is None else ", or the passphrase of the backup by --passphrase-file FILE"
            raise NoIdentity(f"{to}: give the identity of one of these recipients by --identity FILE{also}")
        if note.identity is None:
            raise NoIdentity(f"{to}, and holds no identity that a passphrase wraps: give --identity FILE")
        return Identities.of_text(note.identity, f"the identity in {url}", self.passphrase)


def unsealed(manifest: Manifest, identities: Identities) -> Manifest:
    """Return the manifest of an encrypted backup with all that was sealed in it. Raises `NoIdentity`."""
    assert manifest.encryption is not None and manifest.sealed is not None, "the manifest is not sealed"
    where = f"{manifest.url}, which is encrypted to {', '.join(manifest.encryption.recipients)},"
    told: dict[str, Any] = json.loads(identities.unseal(manifest.sealed, where))
    files = tuple(_unsealed_entry(entry, identities, where) for entry in manifest.files)
    remarks = dict.fromkeys(
        (*map(controls_shown, told["remarks"]), *(remark for file in files for remark in file.remarks))
    )
    return manifest.model_copy(update={"files": files, "remarks": tuple(remarks), "sealed": None})


def _unsealed_entry(entry: FileEntry, identities: Identities, where: str) -> FileEntry:
    if entry.sealed is None:
        return entry
    private = json.loads(identities.unseal(entry.sealed, where))
    return FileEntry.model_validate(entry.model_dump(mode="json") | private | {"sealed": None})


@contextmanager
def decrypting(file: IO[bytes], identities: Identities) -> Iterator[Flow]:
    """Decrypt `file` in a thread of its own. Yields the readable content. Its methods raise `WrongKey` and `Altered`.

    An error of `file` is raised as it is.
    """
    flow, source = Flow(), _Noting(file)
    thread = threading.Thread(target=_decrypt, args=(source, flow, identities), name="decrypt", daemon=True)
    thread.start()
    try:
        yield flow
    finally:
        flow.abandon()
        thread.join()


def _decrypt(source: "_Noting", flow: Flow, identities: Identities) -> None:
    import pyrage

    try:
        pyrage.decrypt_io(source, flow, list(identities.keys))
    except BaseException as error:  # noqa: BLE001  the reader of the flow gets the error
        if source.error is not None:
            flow.end(source.error)
        elif "No matching keys" in str(error):
            flow.end(WrongKey(str(error)))
        else:
            flow.end(Altered(str(error)))
    else:
        flow.end()


def encrypt(flow: Flow, sink: Any, keys: Sequence[Any]) -> None:
    """Encrypt all of `flow` into `sink`, in this thread. Raises the errors of both as they are."""
    import pyrage

    source, target = _Noting(flow), _Noting(sink)
    try:
        pyrage.encrypt_io(source, target, list(keys))
    except pyrage.EncryptError as error:
        raise (target.error or source.error or error) from None


class _Noting:
    """Passes reads and writes on, and notes an error, of which the library keeps only the text."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.error: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        try:
            found: bytes = self._file.read(size)
        except BaseException as error:
            self.error = error
            raise
        return found

    def write(self, data: bytes) -> int:
        try:
            self._file.write(data)
        except BaseException as error:
            self.error = error
            raise
        return len(data)

    def flush(self) -> None:
        """Do nothing: the caller closes the file."""


def new_identity(passphrase: str | None) -> tuple[str, str]:
    """Make an identity. Returns its public key, and its text: wrapped by the passphrase if one is given."""
    import pyrage

    made = pyrage.x25519.Identity.generate()
    public, private = str(made.to_public()), f"{made}\n"
    if passphrase is None:
        return public, private
    wrapped: bytes = pyrage.passphrase.encrypt(private.encode(), passphrase, armored=True)
    return public, wrapped.decode()


def _unwrapped(text: str, passphrase: str, name: str) -> str:
    import pyrage

    try:
        plain: bytes = pyrage.passphrase.decrypt(text.encode(), passphrase)
    except pyrage.DecryptError as error:
        raise BadIdentity(f"the passphrase does not open {name}: {error}") from None
    return plain.decode()


def _recipient(text: str) -> Any:
    """Return the library's recipient. Raises `ValueError`."""
    import pyrage

    try:
        if text.startswith("ssh-"):
            return pyrage.ssh.Recipient.from_str(text)
        return pyrage.x25519.Recipient.from_str(text)
    except pyrage.RecipientError as error:
        raise ValueError(str(error)) from None
