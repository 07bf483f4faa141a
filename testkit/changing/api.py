"""An HTTP API whose records change while it is read page by page."""

import json
import random
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from testkit.servers.api_server import Request, Response, as_json


@dataclass
class ChangingApi:
    """Writers that insert and update records until `stop`; `answer` serves them in the order of their last change.

    A record bears the time at which its change began, and is seen up to `late_s` later. A page has 20 records; the
    token of the next one is the time and the id of the last record. The same `seed` draws the same changes.
    """

    seed: int
    late_s: float = 0.5
    writers: int = 3
    pause_s: float = 0.02
    changes: int = 0
    requests: int = 0
    records: dict[int, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        """Start the writers."""
        for number in range(self.writers):
            writer = threading.Thread(target=self._write, args=(number,), name=f"api-writer-{number}")
            self._threads.append(writer)
            writer.start()

    def stop(self) -> None:
        """Stop the writers; all that they wrote is seen then."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def versions(self) -> dict[int, int]:
        """The last versions of the records, by their ids."""
        return {key: record["version"] for key, record in self.records.items()}

    def newest_s(self) -> float:
        """The latest time that a record bears, in seconds since 1970."""
        return max(datetime.fromisoformat(record["at"]).timestamp() for record in self.records.values())

    def _write(self, number: int) -> None:
        draw = random.Random(f"{self.seed}/{number}")
        mine: list[int] = []
        while not self._over.is_set():
            if not mine or draw.random() < 0.5:
                key, version = len(mine) * self.writers + number, 1
                mine.append(key)
            else:
                key = draw.choice(mine)
                version = self.records[key]["version"] + 1
            began = datetime.fromtimestamp(time.time(), UTC).isoformat()
            if draw.random() < 0.3:
                self._over.wait(draw.random() * self.late_s)
            with self._lock:
                self.records[key] = {"id": key, "version": version, "at": began}
                self.changes += 1
            self._over.wait(draw.random() * self.pause_s)

    def answer(self, request: Request) -> Response:
        """A page."""
        query = dict(_pairs(request))
        after = tuple(json.loads(query["token"])) if "token" in query else ("", -1)
        with self._lock:
            self.requests += 1
            found = sorted(
                (record["at"], key, record)
                for key, record in self.records.items()
                if record["at"] >= query.get("since", "") and (record["at"], key) > after
            )
        page = found[:20]
        token = json.dumps(page[-1][:2]) if len(found) > len(page) else None
        return as_json({"items": [record for _, _, record in page], "next": token})


def _pairs(request: Request) -> list[tuple[str, str]]:
    from urllib.parse import parse_qsl

    return parse_qsl(request.target.partition("?")[2])
