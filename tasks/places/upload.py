"""The upload of a file to an object store, in parts, while the next part is made."""

import threading
from typing import Any, Final

PART_BYTES: Final = 5 << 20
"""The least size of a part in which a file is uploaded."""

_PARTS: Final = 2_000
"""The number of parts from which they grow: an object store takes at most 10,000 parts of one file."""


class Upload:
    """A file that is uploaded in parts, each in a thread, so that whoever writes makes the next part meanwhile.

    The parts grow with the file: 540 GB fit into 10,000 of them. `file` is a file of s3fs, which uploads a part within
    the call of `write` that completes it. A part that waits and one that is sent are in memory.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._part: list[bytes] = []
        self._part_bytes = 0
        self._sending: threading.Thread | None = None
        self._fault: BaseException | None = None

    def write(self, data: bytes) -> int:
        """Write the next bytes. Raises the error of an earlier part."""
        self._part.append(bytes(data))
        self._part_bytes += len(data)
        if self._part_bytes >= self._file.blocksize:
            self._check_sent()
            part, self._part, self._part_bytes = self._part, [], 0
            self._sending = threading.Thread(target=self._send, args=(part,), name="upload a part", daemon=True)
            self._sending.start()
        return len(data)

    def __enter__(self) -> "Upload":
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Wait for the part that is sent, and pass on what is left, for the file to upload when it is closed.

        Raises the error of an earlier part. If the block has failed, nothing more is passed on.
        """
        if failed is None:
            self._check_sent()
            self._send(self._part)
            self._check_sent()
        elif self._sending is not None:
            self._sending.join()

    def _check_sent(self) -> None:
        if self._sending is not None:
            self._sending.join()
        if self._fault is not None:
            raise self._fault

    def _send(self, part: list[bytes]) -> None:
        try:
            for data in part:
                self._file.blocksize = max(self._file.blocksize, self._file.tell() // _PARTS)
                self._file.write(data)
        except BaseException as error:  # noqa: BLE001  whoever writes gets the error
            self._fault = error
