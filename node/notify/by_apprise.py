"""Sends a message by Apprise, in a process of its own (`node.notify.apprise_process`)."""

import asyncio
import json
import os
import re
import signal
import sys
from dataclasses import asdict
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from node.duty.telling import Send
from node.notify.apprise_process import SAID_CHARS_MAX, SEND_S
from node.notify.message import document, message_text
from node.notify.secrets_here import SenderSettings, read_secrets, secret_here
from node.notify.teller import NotSent
from tasks.secret import VALUE_CHARS_MIN, Redactor

OUTPUT_BYTES: Final = 4096
_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")
"""The only environment variables that the process inherits, because others hold the node's secret and token."""


async def send_by_apprise(settings: SenderSettings, cluster_id: str, message: Send) -> str:
    """Send a message. Returns "accepted". Raises `NotSent`."""
    reference, redactor = message.definition.url, Redactor()
    if isinstance(reference, str):
        raise NotSent("the url of an apprise channel is a reference to a secret")
    url = (await read_secrets(settings.node, lambda: secret_here(settings, reference, redactor))).strip()
    for part in _parts(url):
        redactor.learn(part)
    about = document(cluster_id, message)
    order = {
        "url": url,
        "title": about["title"],
        "text": message_text(cluster_id, message),
        "severity": about["severity"],
        "access": asdict(settings.access),
    }
    said = await _outcome(json.dumps(order).encode())
    try:
        outcome = json.loads(said)
        accepted, why = bool(outcome["accepted"]), str(outcome["said"])
    except (ValueError, TypeError, KeyError):
        raise NotSent(f"on {settings.node}: the process that sends ended without an outcome") from None
    if not accepted:
        raise NotSent(f"on {settings.node}: {redactor.redact_text(why)[:SAID_CHARS_MAX]}")
    return why


def _parts(url: str) -> list[str]:
    """Return the parts of a URL to redact from errors: users, passwords, tokens, hosts.

    Short parts are left out, because they may be ordinary words.

    >>> _parts("mailto://me:hunter2@mail.example?to=you%40x.example&mode=starttls")
    ['me:hunter2@mail.example', 'hunter2', 'mail.example', 'you@x.example', 'starttls']
    """
    found = urlsplit(url)
    asked = dict(parse_qsl(found.query)).values()
    words = [found.netloc, *re.split("[:@]", found.netloc), *found.path.split("/"), *asked]
    return [part for word in words if len((part := unquote(word)).strip()) >= VALUE_CHARS_MIN]


async def _outcome(order: bytes) -> bytes:
    """Run the process, and return its output. It is killed if it takes too long. Raises `NotSent`."""
    env = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    nowhere, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", "node.notify.apprise_process", stdin=pipe, stdout=pipe, stderr=nowhere, env=env
        )
    except OSError as error:
        raise NotSent(f"the process that sends cannot be started: {error.strerror}") from None
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SEND_S + 2):
            process.stdin.write(order)
            process.stdin.close()
            said = await process.stdout.read(OUTPUT_BYTES)
            if await process.wait() == -signal.SIGALRM:
                raise TimeoutError
    except TimeoutError:
        raise NotSent(f"the message was not accepted within {SEND_S} s") from None
    except OSError:
        said = b""
    finally:
        if process.returncode is None:
            process.kill()
    return said
