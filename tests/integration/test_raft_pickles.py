"""Nothing that arrives on a Raft port is unpickled: with the secret, a caller could run programs on every node.

The attacks that worked on earlier builds are repeated on a real port, sealed as a member seals them.
"""

import ast
import contextlib
import pickle
import socket
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pysyncobj
import pytest
from pysyncobj import SyncObj
from pysyncobj.tcp_connection import TcpConnection

from node.raft.core.overrides import MendedSyncObj
from node.raft.log import membership
from node.raft.log.snapshots import Snapshots
from node.raft.wire import messages
from node.raft.wire.connections import PeerConnection
from node.raft.wire.encryption import NONCE_BYTES, EncryptedChannel, Seal
from testkit.raft.raft_cluster import Cluster, Process

pytestmark = pytest.mark.integration

SECRET = "between members"


class Harmful:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


class Caller:
    """A caller with the secret, at a Raft port."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=10)
        self.channel: EncryptedChannel = Seal(SECRET).channel(bytes(NONCE_BYTES), dialled=True)
        self.frame(self.channel.greeting())
        self.channel.agree(self.read())

    def frame(self, data: bytes) -> None:
        self._socket.sendall(len(data).to_bytes(4, "little") + data)

    def read(self) -> bytes:
        length = int.from_bytes(self._exactly(4), "little")
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self._socket.recv(length - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return data

    def say(self, data: bytes) -> None:
        self.frame(self.channel.seal(data))

    def introduce(self, member: str, called: str) -> None:
        hello = {"type": "hello", "member": member, "cluster": "", "called": called}
        self.say(messages.pack({**hello, "start": "", "version": "", "port": 1, "asks": False}))
        assert messages.unpack(self.channel.open(self.read()))["type"] == "cluster"

    def ended(self) -> None:
        """Return when the other side has taken all that was sent: it has disconnected, or reads no more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(65536):
                pass
        self._socket.close()


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Process]]:
    """One of three members; the two others do not run, so that a caller can use their names."""
    cluster = Cluster(tmp_path_factory.mktemp("raft"), 3, module="testkit.raft.unpickled_member")
    try:
        cluster.start("n1")
        yield cluster, cluster.running["n1"]
    finally:
        cluster.close()


def pickles(file: Path) -> list[bytes]:
    """The attacks: the object alone, and in each place where the library expects one."""
    key = b"k" * 32
    shapes: list[Any] = [
        Harmful(file),
        (key, Harmful(file)),
        ["add", Harmful(file)],
        {"type": "append_entries", "entries": [Harmful(file)]},
    ]
    return [pickle.dumps(shape, protocol) for shape in shapes for protocol in (0, 2, 5)]


def test_a_member_does_not_load_an_encrypted_pickle(member: tuple[Cluster, Process], tmp_path: Path) -> None:
    cluster, process = member
    address, file = cluster.addresses["n1"], tmp_path / "run"

    def at_once(data: bytes) -> None:
        caller = Caller(address)
        caller.say(data)
        caller.ended()

    def as_a_member(data: bytes) -> None:
        caller = Caller(address)
        caller.introduce("n2", "n1")
        caller.say(data)
        caller.ended()

    def unsealed(data: bytes) -> None:
        with socket.create_connection(address, timeout=10) as stranger:
            stranger.sendall(len(data).to_bytes(4, "little") + data)
            with contextlib.suppress(OSError):
                assert stranger.recv(1) == b""

    def in_a_field(data: bytes) -> None:
        """As a follower of a leader that sends it a harmful entry, command or snapshot."""
        caller = Caller(address)
        caller.introduce("n2", "n1")
        entries = [(b"\x01", 1, 0), *((kind + data, 2, 9) for kind in (b"\x00", b"\x02", b"\x03"))]
        append = {"type": "append_entries", "term": 9, "commit_index": 9, "prevLogIdx": 1, "prevLogTerm": 0}
        for entry in entries:
            caller.say(b"\x00" + msgpack.packb({**append, "entries": [entry]}))
            caller.say(b"\x00" + msgpack.packb({"type": "apply_command", "command": entry[0], "request_id": 1}))
        for transmission in ("start", "process", "finish"):
            caller.say(b"\x00" + msgpack.packb({**append, "transmission": transmission, "data": data}))
        part = {"type": "append_entries", "term": 9, "commit_index": 0, "serialized": (data, True, True)}
        caller.say(b"\x00" + msgpack.packb(part))
        caller.ended()

    ways: list[Callable[[bytes], None]] = [at_once, as_a_member, unsealed, in_a_field]
    for data in pickles(file):
        for way in ways:
            way(data)
        for way in ways[:3]:
            way(zlib.compress(data))
            way(b"\x00" + data)
            way(b"\x01" + zlib.compress(data))
    assert process.do("state")["failure"] == ""
    assert not file.exists()
    assert process.do("unpickled")["found"] == [], "the pickle was loaded"
    pickle.loads(pickle.dumps(Harmful(file)))
    assert file.exists(), "loading this pickle has an effect"


# -- what the library itself offers

REPLACED: dict[str, tuple[type, str, type]] = {
    "syncobj.SyncObj.__doApplyCommand": (SyncObj, "_SyncObj__doApplyCommand", MendedSyncObj),
    "syncobj.SyncObj.__parseChangeClusterRequest": (SyncObj, "_SyncObj__parseChangeClusterRequest", MendedSyncObj),
    "tcp_connection.TcpConnection.__processParseMessage": (
        TcpConnection,
        "_TcpConnection__processParseMessage",
        PeerConnection,
    ),
}
UNREACHED = {
    "syncobj.SyncObj.__onMessageReceived": "pieces of an entry: no shape of append_entries has a `transmission`",
    "serializer.Serializer.deserialize": "`Snapshots` is in the place of the serializer",
    "utility.TcpUtility._onMessageReceived": "a client of the library's, used nowhere",
}


def unpickling() -> set[str]:
    """The functions of the library that unpickle."""
    found = set()
    for path in sorted(Path(pysyncobj.__file__).parent.glob("*.py")):
        if path.stem == "pickle":
            continue

        def walk(node: ast.AST, name: str) -> None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.ClassDef | ast.FunctionDef):
                    walk(child, f"{name}.{child.name}")
                    continue
                if isinstance(child, ast.Attribute) and child.attr in ("load", "loads", "Unpickler"):
                    found.add(name)
                walk(child, name)

        walk(ast.parse(path.read_text()), path.stem)
    return found


def test_every_unpickling_in_the_library_is_replaced_or_unreachable() -> None:
    """A newer version of the library that unpickles elsewhere fails here."""
    assert unpickling() <= REPLACED.keys() | UNREACHED.keys()
    for owner, name, ours in REPLACED.values():
        assert name in vars(owner), f"the library has no {name} any more"
        assert name in vars(ours), f"{ours.__name__} does not replace {name}"
    assert all("transmission" not in shape for shape in messages.KINDS["append_entries"])
    assert not hasattr(Snapshots, "deserialize")
    assert not hasattr(messages, "pickle")
    assert not hasattr(membership, "pickle")
