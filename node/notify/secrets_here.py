"""The values of a channel's references to secrets on this node, and the destinations that the node allows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from node.notify.side_thread import in_side_thread
from node.notify.teller import NotSent
from tasks.access import Access, AccessRefused, addresses, check_address
from tasks.errors import MissingSecret
from tasks.secret import NOBODYS, NodesOwn, Redactor, Reference, resolve

_T = TypeVar("_T")

READ_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """The settings of the node that sends."""

    #: The node's id.
    node: str
    #: The paths and hosts that the node allows tasks and channels to reach.
    access: Access
    #: The folder of secret files.
    secrets_dir: Path
    #: The names of the variables that channels may refer to.
    env_allow: tuple[str, ...] = ()
    #: The values of those variables that `env_allow` names and that are set.
    variables: Mapping[str, str] = field(default_factory=dict)
    #: The node's own secrets, to which no channel may refer.
    own: NodesOwn = NOBODYS


def secret_here(settings: SenderSettings, reference: Reference, redactor: Redactor) -> str:
    """Return the value of a reference to a secret, and add it to `redactor`. May read a file. Raises `NotSent`."""
    try:
        value = resolve(reference, settings.secrets_dir, settings.env_allow, settings.variables, settings.own)
    except MissingSecret as error:
        raise NotSent(f"on {settings.node}: {error}") from None
    redactor.learn(value)
    return value


async def read_secrets(node: str, read: Callable[[], _T]) -> _T:
    """Call `read`, which reads secrets on `node`, and return its result. Raises `NotSent`, also after `READ_S`."""
    try:
        return await in_side_thread(read, READ_S)
    except TimeoutError:
        raise NotSent(f"on {node}: the folder of secrets did not answer within {READ_S:g} s") from None


def check_sendable(access: Access, url: str, *, secret: bool) -> None:
    """Raise `NotSent` unless the node allows a message to go to `url`. The host of a `secret` URL is not named."""
    try:
        for address in addresses(url, {}):
            check_address(access, "destination", address, "the channel's url")
    except (AccessRefused, ValueError) as error:
        hidden = f"{access.node or 'this node'} allows no destination at the host that the secret names"
        why = f"{hidden}: add it to ROTA_DESTINATION_HOSTS there" if secret else str(error)
        raise NotSent(why) from None
