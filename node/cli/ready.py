"""`python -m node.cli.ready`: checks whether the node in this container is ready, for Docker's health check.

Calls GET /readyz on loopback and prints why the node is not ready; `docker inspect` shows that. It runs every few
seconds beside the node, so it imports only the standard library and starts in a few hundredths of a second.
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
    """Return the port of the node's API, from place.json in its data folder (`node.app.data_dir`); 8101 without it."""
    try:
        record = json.loads((data / "place.json").read_text())["holds"]
        return int(json.loads(record)["http_port"])
    except (OSError, ValueError, KeyError, TypeError):
        return DEFAULT_PORT


def ready(host: str, at: int) -> tuple[bool, str]:
    """Return whether the node is ready, and a sentence that says so or why not."""
    connection = http.client.HTTPConnection(host, at, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return False, f"not ready: no answer from {host}:{at} ({error})"
    finally:
        connection.close()
    if answer.status == http.client.OK:
        return True, "ready"
    try:
        why = str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        why = f"GET /readyz returned status {answer.status}"
    return False, f"not ready: {why}"


def main() -> int:
    """Print whether the node is ready. Returns the exit code: 0 if it is ready, else 1."""
    found, sentence = ready("127.0.0.1", port(Path(os.environ.get("ROTA_DATA") or ".")))
    print(sentence)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
