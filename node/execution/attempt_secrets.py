"""The secrets of one attempt: how its supervisor finds them, and answers the worker's requests for them.

The worker can read neither the folder of secrets nor the variables with secrets. It sends a reference to the
supervisor, and receives the value if the task's params name that reference.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from traceback import extract_tb
from typing import Final

import msgpack

from node.execution import frames
from tasks.errors import MissingSecret
from tasks.secret import NOBODYS, NodesOwn, Reference, SecretEnv, SecretFile, reference_of, resolve, shown

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AttemptSecrets:
    """The secrets from which a supervisor answers `ctx.secret`."""

    references: tuple[Reference, ...] = ()
    """The references that the params name. A request for any other reference is refused."""
    folder: str = "/run/secrets"
    """The member's folder of secret files."""
    env_allow: tuple[str, ...] = ()
    """The names of the variables that the member lets tasks refer to."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The values of the variables among `references`, as far as they are allowed and set."""
    own: NodesOwn = NOBODYS
    """The node's own secret and token. A reference that leads to one of them is refused."""

    def value(self, reference: Reference) -> str:
        """Resolve a reference, from a variable or a file. Raises `MissingSecret`."""
        if reference not in self.references:
            raise MissingSecret(
                f"{shown(reference)} is not named in the task's params: a kind is given the secrets that the params "
                "refer to, and no other"
            )
        return resolve(reference, Path(self.folder), self.env_allow, self.variables, self.own)

    def pack(self) -> bytes:
        """Pack as msgpack; empty if the params name no secret."""
        if not self.references:
            return b""
        return bytes(
            msgpack.packb(
                {
                    "references": [one.model_dump() for one in self.references],
                    "folder": self.folder,
                    "env_allow": self.env_allow,
                    "variables": dict(self.variables),
                    "own": asdict(self.own),
                }
            )
        )

    @classmethod
    def unpacked(cls, packed: bytes) -> "AttemptSecrets":
        """The inverse of `pack`."""
        if not packed:
            return NO_SECRETS
        values = msgpack.unpackb(packed)
        own = values["own"]
        return cls(
            tuple(SecretFile(**one) if "secret" in one else SecretEnv(**one) for one in values["references"]),
            values["folder"],
            tuple(values["env_allow"]),
            values["variables"],
            NodesOwn(tuple(own["files"]), own["data"], own["key"], tuple(own["marks"])),
        )


NO_SECRETS: Final = AttemptSecrets()
"""No secrets: for an attempt whose params name none, and for the worker of every attempt."""


class SecretAnswers:
    """Answers the requests of one worker, one at a time.

    A thread looks up each value, because the folder of secrets may be on a network, and the supervisor's loop must not
    wait for it: the loop enforces the lease's deadline. The thread calls `learn` with a value before the worker
    receives it, so that the log never shows the value. It calls `wake` once there is an answer.
    """

    def __init__(self, secrets: AttemptSecrets, learn: Callable[[str], None], wake: Callable[[], None]) -> None:
        self._secrets = secrets
        self._learn = learn
        self._wake = wake
        self._under_way = False
        self._answer: frames.SecretFrame | None = None

    def ask(self, request: frames.SecretAskFrame) -> None:
        """Begin to look up a reference. Raises `BadFrame` if it is invalid, or the last answer is not taken yet."""
        if self._under_way:
            raise frames.BadFrame("a second request for a secret before the first was answered")
        try:
            reference = reference_of({request.source: request.name})
        except MissingSecret as error:
            raise frames.BadFrame(str(error)) from None
        self._under_way = True
        threading.Thread(target=self._look_up, args=(reference,), daemon=True, name="secret").start()

    def take(self) -> frames.SecretFrame | None:
        """Return the answer, only once; None while the reference is being looked up."""
        answer, self._answer = self._answer, None
        if answer is not None:
            self._under_way = False
        return answer

    def _look_up(self, reference: Reference) -> None:
        try:
            value = self._secrets.value(reference)
            self._learn(value)
            answer = frames.SecretFrame(value, "")
        except MissingSecret as error:
            answer = frames.SecretFrame(None, str(error))
        except Exception as error:  # noqa: BLE001  without an answer the worker would wait for ever
            # The message of the error is left out: it may quote a secret's value.
            what, where = type(error).__name__, extract_tb(error.__traceback__)[-1]
            log.error(  # noqa: TRY400  as above
                "%s cannot be looked up: %s at %s:%s", shown(reference), what, where.filename, where.lineno
            )
            answer = frames.SecretFrame(None, f"{shown(reference)} cannot be looked up: the node's log says why")
        self._answer = answer
        self._wake()
