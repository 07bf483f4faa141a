"""One request to a receiver outside the cluster: bounded in time and size, never redirected."""

from collections.abc import Mapping
from typing import Final

import aiohttp

from node.notify.name_lookup import SideResolver
from node.notify.secrets_here import SenderSettings, check_sendable, read_secrets, secret_here
from node.notify.teller import NotSent
from node.state.channel import url_fault
from tasks.secret import Redactor, Reference, shown

SEND_S: Final = 10.0
"""How long a receiver may take to answer."""

ANSWER_BYTES: Final = 500
"""How much of an answer is read."""


def allowed_url(settings: SenderSettings, where: Reference | str, redactor: Redactor) -> str:
    """The URL, checked: the node allows it as a destination. May read a file. Raises `NotSent`."""
    if isinstance(where, str):
        url, named = where, "the url"
    else:
        url, named = secret_here(settings, where, redactor).strip(), f"on {settings.node}: the url in {shown(where)}"
    if (fault := url_fault(url)) is not None:
        raise NotSent(f"{named}: {fault}")
    check_sendable(settings.access, url, secret=not isinstance(where, str))
    return url


async def request(
    method: str, url: str, headers: Mapping[str, str], redactor: Redactor, data: bytes | None = None
) -> str:
    """The receiver's answer, in short, redacted. Raises `NotSent` unless it is a 2xx."""
    limits = aiohttp.ClientTimeout(total=SEND_S)
    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=SideResolver()), timeout=limits, auto_decompress=False
            ) as session,
            session.request(method, url, data=data, headers=headers, allow_redirects=False) as response,
        ):
            said, status = await response.content.read(ANSWER_BYTES), response.status
    except TimeoutError:
        raise NotSent(f"the receiver did not answer within {SEND_S:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise NotSent(redactor.redact_text(f"the receiver cannot be reached: {_short(str(error))}")) from None
    answer = redactor.redact_text(f"{status} {_short(said.decode('utf-8', 'replace'))}".strip())
    if 300 <= status < 400:
        raise NotSent(f"the receiver answered {status}, a redirect, which is not followed: change the url")
    if not 200 <= status < 300:
        raise NotSent(f"the receiver answered {answer}")
    return answer


async def ping(settings: SenderSettings, where: Reference | str) -> str:
    """GET a URL, or one that a reference holds; the answer, in short. Raises `NotSent`."""
    redactor = Redactor()
    url = await read_secrets(settings.node, lambda: allowed_url(settings, where, redactor))
    return await request("GET", url, {"user-agent": "rota", "x-rota-node": settings.node}, redactor)


def _short(said: str) -> str:
    return " ".join(said.split())[:200]
