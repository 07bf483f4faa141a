import os
from contextlib import closing
from pathlib import Path

import pytest

from node.app.data_dir import DataDir, DataDirInUse, ForeignFolder, knows_members
from node.membership.addresses import Agreed
from node.state.entries import Seed


def test_one_folder_serves_one_process_at_a_time(tmp_path: Path) -> None:
    first = DataDir(tmp_path, "node-1", 1)
    with pytest.raises(DataDirInUse, match="is in use by a node that runs already"):
        DataDir(tmp_path, "node-1", 1)
    first.close()
    DataDir(tmp_path, "node-1", 1).close()


def test_the_folder_is_private_to_its_user(tmp_path: Path) -> None:
    for there_already in (False, True):
        path = tmp_path / str(there_already) / "data"
        if there_already:
            path.mkdir(parents=True)
        DataDir(path, "node-1", 1).close()
        assert path.stat().st_mode & 0o777 == 0o700
    (tmp_path / "shared").mkdir(mode=0o755)
    (tmp_path / "shared" / "somebody's").touch()
    DataDir(tmp_path / "shared", "node-1", 1).close()
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755, "not a node's: named by mistake, perhaps"


def test_sessions_only_grow_even_if_the_clock_steps_back_or_the_folder_is_lost(tmp_path: Path) -> None:
    sessions = []
    for now_us in (1_000, 500, 2_000):
        folder = DataDir(tmp_path / "a", "node-1", now_us)
        sessions.append(folder.session)
        folder.close()
    folder = DataDir(tmp_path / "b", "node-1", 3_000)
    sessions.append(folder.session)
    folder.close()
    assert sessions == sorted(set(sessions))


def test_the_folder_of_another_node_is_refused(tmp_path: Path) -> None:
    DataDir(tmp_path, "node-1", 1).close()
    with pytest.raises(ForeignFolder, match="belongs to node 'node-1'"):
        DataDir(tmp_path, "node-2", 1)


DAMAGES = ["{", "[1]", "\0", "", "\udcff", '{"crc": 1, "holds": "{}"}', '{"crc": 0, "holds": 3}', "flip"]


def damage(path: Path, text: str) -> bytes:
    content = path.read_bytes()
    content = (
        bytes([*content[:30], content[30] ^ 1, *content[31:]])
        if text == "flip"
        else text.encode(errors="surrogateescape")
    )
    path.write_bytes(content)
    return content


@pytest.mark.parametrize("text", DAMAGES)
def test_a_damaged_file_is_set_aside_and_logged(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    first = DataDir(tmp_path, "node-1", 1)
    first.close()
    (tmp_path / "raft").mkdir()
    harmed = damage(tmp_path / "node.json", text)
    folder = DataDir(tmp_path, "node-1", 9)
    assert folder.session == 10, "no earlier one can have been later than the clock"
    folder.close()
    assert (tmp_path / "node.json.damaged-1").read_bytes() == harmed
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "node.json cannot be read" in caplog.text
    DataDir(tmp_path, "node-1", 9).close()
    assert len(caplog.records) == 1


def test_a_folder_with_other_content_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text('{"name": "something else"}')
    with pytest.raises(ForeignFolder, match="was not written by a node: give this node its own folder"):
        DataDir(tmp_path, "node-1", 1)
    assert (tmp_path / "node.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
def test_a_closed_folder_of_another_user_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The volume of a container whose user was changed to root: the node can use it, and its attempts cannot."""
    DataDir(tmp_path, "a", 1).close()
    os.chown(tmp_path, 65_534, 65_534)
    DataDir(tmp_path, "a", 2, passable=True).close()
    assert "belongs to user id 65534, and this node is root: its attempts" in caplog.text
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    caplog.clear()
    tmp_path.chmod(0o711)
    DataDir(tmp_path, "a", 3).close()
    assert caplog.messages == []


def test_committed_members_are_kept_for_the_next_start(tmp_path: Path) -> None:
    agreed = {"node-1": Agreed(("127.0.0.1", 7001), ("127.0.0.1", 7001)), "late": Agreed(("127.0.0.1", 7009), None)}
    folder = DataDir(tmp_path, "node-1", 1)
    assert folder.fresh
    folder.keep_agreed(agreed)
    folder.close()
    folder = DataDir(tmp_path, "node-1", 1)
    assert not folder.fresh
    assert folder.agreed() == agreed
    folder.close()


@pytest.mark.parametrize("text", DAMAGES)
def test_a_damaged_list_of_members_is_set_aside_and_logged(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = DataDir(tmp_path, "node-1", 1)
    (tmp_path / "raft").mkdir()
    folder.keep_agreed({"node-1": Agreed(("127.0.0.1", 7001), None)})
    known = folder.agreed()
    harmed = damage(tmp_path / "members.json", text)
    assert folder.agreed() == {}
    assert known
    assert folder.fresh, "as with a folder that was lost, the configuration says where the others are"
    assert (tmp_path / "members.json.damaged-1").read_bytes() == harmed
    assert "members.json cannot be read" in caplog.text
    folder.close()


def test_a_node_s_address_is_kept_for_the_next_start(tmp_path: Path) -> None:
    here, there = Seed("node-1", "127.0.0.1", 7001, 8101), Seed("node-1", "127.0.0.1", 7002, 8102)
    for place, known in ((here, None), (there, here), (there, there)):
        with closing(DataDir(tmp_path, "node-1", 1)) as folder:
            assert folder.place() == known
            folder.keep_place(place)
            assert folder.place() == place


def test_a_folder_with_all_addresses_needs_no_configuration_of_them(tmp_path: Path) -> None:
    with closing(DataDir(tmp_path, "node-1", 1)) as folder:
        folder.keep_place(Seed("node-1", "127.0.0.1", 7001, 8101))
        assert not knows_members(tmp_path)
        folder.keep_agreed({"node-1": Agreed(("127.0.0.1", 7001), None)})
    assert knows_members(tmp_path)
    assert not knows_members(tmp_path / "nowhere")


def test_a_folder_of_an_earlier_build_is_made_passable_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "data"
    DataDir(path, "node-1", 1).close()
    for name in ("raft", "scratch"):
        (path / name).mkdir(mode=0o755)
    (path / "history.db").touch(mode=0o644)
    (path / "outside").symlink_to(tmp_path)
    before = tmp_path.stat().st_mode
    for _ in range(2):
        DataDir(path, "node-1", 1, passable=True).close()
        modes = {each.name: each.stat().st_mode & 0o777 for each in path.iterdir() if not each.is_symlink()}
        modes.pop("node.json")  # written anew, with the umask of the process: a node's is 077
        assert modes == {"lock": 0o600, "raft": 0o700, "scratch": 0o700, "history.db": 0o600}
        assert path.stat().st_mode & 0o777 == 0o711
    assert [line for line in caplog.messages if "had mode 0700, and has 0711 now" in line] == caplog.messages[:1]
    assert len(caplog.messages) == 1
    assert tmp_path.stat().st_mode == before, "what a link leads to is not the node's"
    DataDir(path, "node-1", 1).close()
    assert path.stat().st_mode & 0o777 == 0o700, "closed again where no attempt is another user's"
