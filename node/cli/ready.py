"""`python -m node.cli.ready`: whether the node in this container is ready, for Docker's health check.

Asks GET /readyz on loopback, and prints why not: `docker inspect` shows it. Starts in a few hundredths of a second:
nothing of ours is imported, since it runs every few seconds beside the node.
"""

import http.client
import json
import os
import sys
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 2.0
DEFAULT_PORT: Final = 8101


def port(data: Path) -> int:
    """The port of the node's API, as it noted it at its start (`node.app.data_dir`); 8101 before that."""
    try:
        noted = json.loads((data / "place.json").read_text())["holds"]
        return int(json.loads(noted)["http_port"])
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT_PORT


def ready(host: str, at: int) -> tuple[bool, str]:
    """Whether a node is ready, and a sentence about it."""
    connection = http.client.HTTPConnection(host, at, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return False, f"not ready: nothing answers on {host}:{at} ({error})"
    finally:
        connection.close()
    if answer.status == http.client.OK:
        return True, "ready"
    try:
        why = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        why = f"GET /readyz was answered with status {answer.status}"
    return False, f"not ready: {why}"


def main() -> int:
    """The exit code: 0 if the node is ready, else 1."""
    found, sentence = ready("127.0.0.1", port(Path(os.environ.get("ROTA_DATA") or ".")))
    print(sentence)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
