"""The ledger of a webhook's task: the holder, the last batch, and how many of the batch's requests were acknowledged.

Each file in the folder `versions`, such as 000000000007.json, has the whole state of the ledger, and is never changed.
The file with the greatest number is the current one. The next file is written on condition that it does not exist. So
if two attempts have read the same state, only one can change it, and the other reads again.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from spark_tasks.contracts.sink import SinkAway, SinkOvertaken, SinkUnfit, Visible, is_in
from spark_tasks.storage.errors import store_errors
from spark_tasks.storage.store import heeds_conditions
from spark_tasks.table.ledger import Mark
from spark_tasks.webhook.params import VERSIONS
from tasks.places.place import Place

_PROBE: Final = ".conditional-writes"

KEPT: Final = 20
"""The number of newest versions that are kept. Older ones are removed, the oldest first."""

RUNS_KEPT: Final = 100
"""The number of newest batches whose run ids the ledger keeps."""

_TRIES: Final = 20


@dataclass(frozen=True)
class Sealed:
    """A batch whose requests are final: neither their number, nor their keys, nor their bodies change any more."""

    #: The batch's mark.
    mark: Mark
    #: A random id of this batch.
    id: str
    #: The id of the run that made the batch.
    run_id: str
    #: How far the source has been read; None: the source has no cursor.
    cursor: dict[str, Any] | None
    #: The number of rows.
    rows: int
    #: The number of requests.
    requests: int


@dataclass(frozen=True)
class LedgerState:
    """The ledger's state. The first `delivered` requests of the batch `last` were acknowledged."""

    holder: int | None = None
    last: Sealed | None = None
    delivered: int = 0
    runs: tuple[str, ...] = ()

    @property
    def visible(self) -> Visible | None:
        """The last batch, as sinks return it; None if there is no batch."""
        return None if self.last is None else Visible(self.last.mark, self.last.run_id, self.last.cursor)

    @property
    def waiting(self) -> Sealed | None:
        """The last batch, if some of its requests are not acknowledged."""
        return self.last if self.last is not None and self.delivered < self.last.requests else None

    def sealing(self, sealed: Sealed, target: str) -> "LedgerState | None":
        """Return the state after the batch is sealed; None if this attempt has sealed it already. Raises the errors of
        `is_in`.
        """
        if is_in(sealed.mark, self.visible, self.holder, target):
            return None
        if self.waiting is not None:
            raise SinkUnfit(f"batch {self.waiting.mark.batch} of {target} was not delivered yet")
        return LedgerState(self.holder, sealed, 0, (*self.runs, sealed.run_id)[-RUNS_KEPT:])

    def having_delivered(self, token: int, mark: Mark, requests: int, target: str) -> "LedgerState | None":
        """Return the state after `requests` were acknowledged; None if the state has them already. Raises
        `SinkOvertaken`.
        """
        if self.holder != token or self.last is None or self.last.mark != mark:
            raise SinkOvertaken(f"the attempt with token {self.holder}, not {token}, holds {target}")
        return replace(self, delivered=requests) if requests > self.delivered else None


class WebhookLedger:
    """The ledger at `place`. All methods raise `NoBucket`, `NoPermission` and `StoreAway` for a store that fails."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._heeds = False

    def read(self) -> LedgerState:
        """Return the present state."""
        return self._read()[1]

    def change(self, decide: "Callable[[LedgerState], LedgerState | None]") -> bool:
        """Store the state that `decide` returns for the present state. Returns False if `decide` returns None.

        `decide` may be called several times. Raises the errors of `decide`, `SinkOvertaken`, `SinkUnfit` and
        `SinkAway`.
        """
        for _ in range(_TRIES):
            version, state = self._read()
            new = decide(state)
            if new is None:
                return False
            if self._write(version + 1, new):
                return True
        raise SinkAway(f"{self.place.shown(VERSIONS)}: other attempts kept changing the ledger, {_TRIES} times")

    def _read(self) -> tuple[int, LedgerState]:
        for _ in range(_TRIES):
            versions = self._versions()
            if not versions:
                return 0, LedgerState()
            path = _path(versions[-1])
            with store_errors(self.place):
                content = self.place.read(path)
            if content is not None:
                return versions[-1], self._parsed(path, content)
            # The file was removed since it was listed, because other attempts have written many newer versions.
        raise SinkAway(f"{self.place.shown(VERSIONS)}: other attempts kept changing the ledger, {_TRIES} times")

    def _parsed(self, path: str, content: bytes) -> LedgerState:
        try:
            value = json.loads(content)
            last = value["last"]
            sealed = None if last is None else Sealed(**last | {"mark": Mark(**last["mark"])})
            return LedgerState(value["holder"], sealed, value["delivered"], tuple(value["runs"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SinkUnfit(f"{self.place.shown(path)} is damaged ({error}): restore it") from None

    def _versions(self) -> list[int]:
        with store_errors(self.place):
            names = self.place.names(VERSIONS)
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdecimal())

    def _write(self, version: int, state: LedgerState) -> bool:
        """Write the version. Returns False if another attempt has written a version with that number."""
        if not self._heeds:
            if not heeds_conditions(self.place, _PROBE):
                raise SinkUnfit(
                    f"{self.place.url}: the store ignores conditional writes (If-None-Match: *), without which two "
                    "attempts could both deliver: use a store or a version of it that supports them"
                )
            self._heeds = True
        content = json.dumps(asdict(state)).encode()
        path = _path(version)
        with store_errors(self.place):
            # A store's library may repeat a write whose answer was lost, and then find its own object.
            if not self.place.write_new(path, content) and self.place.read(path) != content:
                return False
        versions = self._versions()
        if not _follows(version, versions):
            raise SinkOvertaken(f"other attempts went on with {self.place.shown(VERSIONS)} while this one stood still")
        with store_errors(self.place):
            for old in versions[:-KEPT]:
                self.place.remove(_path(old))
        return True


def _path(version: int) -> str:
    return f"{VERSIONS}/{version:012d}.json"


def _follows(version: int, versions: Iterable[int]) -> bool:
    """Whether `version` was new when it was written; `versions` are those that exist now.

    If the writer was paused for long, other attempts may have written a version with the same number before, and
    removed it. Then the previous version was removed, too; or, if it is the first version, there are versions with
    numbers above `KEPT`.

    >>> _follows(7, [5, 6, 7]), _follows(7, [7, 31, 32]), _follows(1, [1]), _follows(1, [1, 9, 29])
    (True, False, True, False)
    """
    there = set(versions)
    return version - 1 in there if version > 1 else max(there) <= KEPT
