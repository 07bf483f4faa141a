"""What a client does about members that take a connection and then say nothing, or no more."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from node.client import ApiProblem, Client, Unreachable

pytestmark = pytest.mark.integration

HEAD = b"HTTP/1.1 200 OK\r\nRota-Index: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
REFUSED = b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\n{"
LIMIT_S = 0.4


@contextmanager
def member(*said: bytes | float) -> Iterator[str]:
    """Says these bytes to the first who asks, waits for so many seconds where a number stands, and is silent then."""
    done = threading.Event()

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            for each in said:
                if isinstance(each, bytes):
                    connection.sendall(each)
                else:
                    time.sleep(each)
            done.wait(20)

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        if said:
            threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        done.set()


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def within(limit_s: float, call: Callable[[], object]) -> None:
    """Do it in a thread: what hangs is to fail, and not to hang the tests."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    assert not thread.is_alive(), "it hangs"
    if failed:
        raise failed[0]


@pytest.mark.parametrize("endless", [False, True])
def test_the_next_member_is_asked_for_a_stream_where_the_first_one_says_nothing(endless: bool) -> None:
    with member() as frozen, member(HEAD, chunk(b"a"), chunk(b"b"), chunk(b"")) as other:
        client = Client([frozen, other], timeout_s=LIMIT_S)
        heard: list[bytes] = []
        within(5, lambda: heard.extend(client.stream("/v1/x", endless=endless)))
        assert b"".join(heard) == b"ab"


@pytest.mark.parametrize("endless", [False, True])
def test_a_stream_of_nobody_ends(endless: bool) -> None:
    with member() as frozen, pytest.raises(Unreachable, match="no member answered"):
        within(5, lambda: list(Client([frozen], timeout_s=LIMIT_S).stream("/v1/x", endless=endless)))


@pytest.mark.parametrize("said", [(HEAD,), (HEAD, chunk(b"a")), (HEAD, b"5\r\nab")])
def test_a_stream_that_falls_silent_has_broken_off(said: tuple[bytes, ...]) -> None:
    with member(*said) as silent, pytest.raises(Unreachable, match="has broken off"):
        within(5, lambda: list(Client([silent], timeout_s=LIMIT_S).stream("/v1/x")))


def test_a_refusal_that_falls_silent_has_broken_off() -> None:
    with member(REFUSED) as silent, pytest.raises((Unreachable, ApiProblem)):
        within(5, lambda: list(Client([silent], timeout_s=LIMIT_S).stream("/v1/x")))


def test_the_kernel_is_to_ask_whether_the_other_end_of_an_endless_stream_is_there() -> None:
    with member(HEAD, chunk(b"a")) as silent:
        pieces = Client([silent], timeout_s=LIMIT_S).stream("/v1/x", endless=True)
        assert next(iter(pieces)) == b"a"
        assert _timer(int(silent.rpartition(":")[2])) == KEEPALIVE


KEEPALIVE = "02"


def _timer(port: int) -> str:
    """What timer runs for a connection to that port (proc_net_tcp.rst in the kernel's documentation)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    [timer] = [row[5].partition(":")[0] for row in rows if row[2] == f"0100007F:{port:04X}" and row[3] == "01"]
    return timer


def test_an_endless_stream_may_be_silent() -> None:
    with member(HEAD, chunk(b"a"), 4 * LIMIT_S, chunk(b"b"), chunk(b"")) as slow:
        heard: list[bytes] = []
        within(5, lambda: heard.extend(Client([slow], timeout_s=LIMIT_S).stream("/v1/x", endless=True)))
        assert b"".join(heard) == b"ab"


def test_an_address_without_a_scheme_is_one_of_http(recwarn: pytest.WarningsRecorder) -> None:
    with member(HEAD, chunk(b"{}"), chunk(b"")) as other:
        within(5, lambda: Client([other.removeprefix("http://")], timeout_s=LIMIT_S).get("/v1/x"))
    assert [str(each.message) for each in recwarn] == []


def test_an_https_address_of_a_node_is_told_to_be_http() -> None:
    refused = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    with member(refused) as plain, pytest.raises(Unreachable, match="nodes speak no TLS: use http://"):
        within(5, lambda: Client([plain.replace("http:", "https:")], timeout_s=LIMIT_S).get("/v1/x"))


@pytest.mark.parametrize("greets", [b"", b"rota/hb3" + bytes(16)], ids=["as a Raft port", "as a heartbeat port"])
def test_a_port_that_is_not_that_of_the_api_is_said_to_be_none(greets: bytes) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(greets)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(Unreachable, match="it hung up without an answer in HTTP"):
            Client([f"http://127.0.0.1:{listener.getsockname()[1]}"]).get("/v1/cluster")
