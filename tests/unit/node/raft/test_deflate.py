"""What is stored is read by any zlib, whatever its size."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pysyncobj import tcp_connection

from node.raft import consensus
from node.raft.deflate import STORED_MAX, compress, stored


@given(st.binary(max_size=300))
def test_what_is_stored_is_read_by_zlib(data: bytes) -> None:
    assert zlib.decompress(stored(data)) == data


@pytest.mark.parametrize("size", [0, STORED_MAX - 1, STORED_MAX, STORED_MAX + 1, 65_535, 1 << 20])
def test_every_size_comes_back(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    packed = compress(data[:size], 3)
    assert zlib.decompress(packed) == data[:size]
    assert (len(packed) > size) == (size <= STORED_MAX)


def test_the_largest_stored_block() -> None:
    data = b"x" * 65_535
    assert zlib.decompress(stored(data)) == data


def test_the_librarys_connections_use_it() -> None:
    assert consensus.Consensus is not None
    assert tcp_connection.zlib.compress is compress
