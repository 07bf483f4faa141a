"""What is read from texts about MariaDB servers: URLs, grants, accounts and dumps."""

from collections.abc import Iterator

import pytest

from tasks.backup.archive import Content, Damaged
from tasks.backup.params import BackupParams
from tasks.backup.sources.mariadb.accounts import MariadbAccount, accounts_in, statements_for
from tasks.backup.sources.mariadb.dumped import DumpReader, database_in, header, object_name
from tasks.backup.sources.mariadb.grants import lacks
from tasks.backup.sources.mariadb.server import option_file
from tasks.backup.sources.mariadb.url import parse_mariadb


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://a@b/", "begins with mysql://"),
        ("mysql://a:b@c/", "must not contain a password"),
        ("mysql://host/", "names no user"),
        ("mysql://a@/", "either a host or a socket"),
        ("mysql://a@b/?socket=/s", "either a host or a socket"),
        ("mysql://a@/?socket=s", "absolute path"),
        ("mysql://a@b/?init-command=x", "init-command cannot be set"),
        ("mysql://a@b/?tls=off", "preferred or verified"),
        ("mysql://a@b/?ca=/x", "without tls=verified"),
        ("mysql://a%0Ab@c/", "control character"),
        ("mysql://a@b:x/", "Port"),
        ("mysql://a@b/?tls=verified&ca=/etc/ssl/certs/x%22%0Aplugin-dir=%22/srv", "without control characters"),
        ("mysql://a@/?socket=/s%0Aplugin-dir=/srv", "without control characters"),
    ],
)
def test_urls_that_are_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_mariadb(url)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"url": "mysql://a@b/shop"}, "give the database in `databases`"),
        ({"url": "mysql://a@b/", "databases": []}, "at least 1"),
        ({"url": "mysql://a@b/", "databases": ["mysql"]}, "server itself"),
        ({"url": "mysql://a@b/", "databases": ["a\nb"]}, "pattern"),
    ],
)
def test_sources_that_are_refused(source: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BackupParams.model_validate({"source": {"type": "mariadb"} | source, "destination": "/to"})


def test_the_option_file_names_the_server_and_nothing_else() -> None:
    verified = option_file(parse_mariadb("mariadb://a@[::1]:3307/?tls=verified&ca=/etc/ca.pem"), None)
    assert verified.splitlines() == [
        "[client]",
        'user="a"',
        'protocol="tcp"',
        'host="::1"',
        'port="3307"',
        'ssl-ca="/etc/ca.pem"',
        "ssl-verify-server-cert",
    ]
    quoted = option_file(parse_mariadb('mysql://a@b/?tls=verified&ca=/x"y'), None)
    assert 'ssl-ca="/x\\"y"' in quoted.splitlines()
    assert 'socket="/run/m.sock"' in option_file(parse_mariadb("mysql://a@/?socket=/run/m.sock"), "x")


def test_names_of_objects_are_short_and_come_back() -> None:
    for name in ("shop", "a/b", "..", "größe x-y%", "数据" * 32, "databases", "it's"):
        made = object_name(name)
        assert database_in(made) == name
        assert "/" not in made
        assert len(made.encode()) <= 255


def test_grants_on_patterns_of_names() -> None:
    assert lacks([r"GRANT SELECT, SHOW VIEW, TRIGGER, EVENT ON `a\_b`.* TO `x`@`%`"], "a_b") == []
    assert lacks([r"GRANT SELECT, SHOW VIEW, TRIGGER, EVENT ON `a\_b`.* TO `x`@`%`"], "aXb") != []
    assert lacks(["GRANT SELECT (id), INSERT ON `a`.`t` TO `x`@`%`", "GRANT USAGE ON *.* TO `x`@`%`"], "a") != []


DUMP = """/*M!999999\\- enable the sandbox mode */
/*!40101 SET NAMES utf8mb4 */;
CREATE USER IF NOT EXISTS `root`@`localhost`;
CREATE USER IF NOT EXISTS `o'neil`@`%` IDENTIFIED BY PASSWORD '*7C67';
CREATE ROLE IF NOT EXISTS mariadb_dump_import_role;
GRANT mariadb_dump_import_role TO CURRENT_USER();
/*!80001 CREATE ROLE IF NOT EXISTS 'reader' */;
/*M!100005 CREATE ROLE IF NOT EXISTS 'reader' WITH ADMIN mariadb_dump_import_role */;
/*M!100005 GRANT 'reader' TO 'root'@'localhost' WITH ADMIN OPTION */;
GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION;
GRANT PROXY ON ``@`%` TO `root`@`localhost` WITH GRANT OPTION;
GRANT `reader` TO `o'neil`@`%`;
/*M!100005 SET DEFAULT ROLE 'reader' FOR 'o''neil'@'%' */;
/*!80001 ALTER USER 'o''neil'@'%' DEFAULT ROLE 'reader' */;
GRANT SELECT ON `shop`.* TO `reader`;
SET ROLE NONE;
"""


def test_accounts_that_a_server_has_are_left_alone() -> None:
    root, neil, reader = (
        MariadbAccount("root", "localhost"),
        MariadbAccount("o'neil", "%"),
        MariadbAccount("reader", ""),
    )
    assert accounts_in(DUMP) == {root, neil, reader}
    kept = statements_for(DUMP, {neil, reader})
    assert "PROXY" not in kept
    assert "ON *.*" not in kept
    assert kept.count("reader") == 7
    assert "GRANT mariadb_dump_import_role TO CURRENT_USER();" in kept
    assert statements_for(DUMP, {root, neil, reader}).strip() == DUMP.strip()


END = b"\n-- Dump completed on 2026-11-27  2:48:25\n"
TRIGGER = b"DELIMITER ;;\n/*!50003 CREATE*/ /*!50017 DEFINER=`a`@`b`*/ /*!50003 %s FOR EACH ROW SET NEW.v = 1 */;;\n"


def reader_of(*pieces: bytes) -> DumpReader:
    def chunks() -> Iterator[bytes]:
        yield from pieces

    return DumpReader(Content(chunks()), "database.a.sql.zst")


def test_a_dump_ends_with_its_last_line() -> None:
    content = header(["a"]) + b"INSERT INTO t VALUES ('x');"
    assert b"".join(reader_of(content, END[:9], END[9:]).chunks()) == content + END
    for cut in (content, content + END + b"more", content + END[:-1]):
        with pytest.raises(Damaged, match="cut short"):
            list(reader_of(cut).chunks())
    assert reader_of(content).databases() == ["a"]
    with pytest.raises(Damaged, match="does not begin"):
        reader_of(b"-- Rota dumped: nothing\n").databases()


@pytest.mark.parametrize(
    ("statement", "is_named"),
    [
        (TRIGGER % b"trigger t before insert on x", False),
        (TRIGGER % b"TRIGGER  if not exists `a``.b`\n after delete\non `y z`\n", False),
        (TRIGGER % b"trigger s.t before insert on x", True),
        (TRIGGER % b"trigger t before insert on `s` . x", True),
        (TRIGGER % b"trigger t before insert on s.x", True),
        (TRIGGER % b"trigger /* s */ t before insert on x", True),
        (b"ALTER DATABASE `s` CHARACTER SET latin1 COLLATE latin1_swedish_ci ;\n", True),
        (b"INSERT INTO t VALUES ('ALTER DATABASE `s`');\n", False),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 7, 5000])
def test_statements_that_name_the_database_are_held_back(statement: bytes, is_named: bool, piece_bytes: int) -> None:
    content = header(["s"]) + b"x" * 5000 + b"\n" + statement + b"y" * 5000 + END
    pieces = [content[at : at + piece_bytes] for at in range(0, len(content), piece_bytes)]
    passed = b""
    if not is_named:
        assert b"".join(reader_of(*pieces).chunks(own_name=False)) == content
        return
    with pytest.raises(Damaged, match="under the name of its database"):
        for chunk in reader_of(*pieces).chunks(own_name=False):
            passed += chunk
    assert b"\n/*!50003" not in passed
    assert b"ALTER" not in passed
