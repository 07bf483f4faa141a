"""The rows of a dump of mariadb-dump, counted as it passes, however it is cut into pieces."""

import pytest

from tasks.backup.sources.mariadb.row_counter import RowCounter

HEAD = b"-- Rota dumped: []\n-- MariaDB dump 10.19  Distrib 10.11.19-MariaDB, for debian-linux-gnu (x86_64)\n"
DUMP = r"""
--
-- Dumping data for table `t`
--

LOCK TABLES `t` WRITE;
/*!40000 ALTER TABLE `t` DISABLE KEYS */;
INSERT INTO `t` VALUES
(1,'x\n(y'),
(2,'UNLOCK TABLES;'),
(3,'LOCK TABLES `z` WRITE;');
INSERT INTO `t` (`id`, `v`) VALUES (4,NULL),
(5,'INSERT INTO `t` VALUES (');
/*!40000 ALTER TABLE `t` ENABLE KEYS */;
UNLOCK TABLES;
DELIMITER ;;
/*!50003 CREATE*/ /*!50003 TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.id=
(3)
LOCK TABLES `fake` WRITE;
*/;;
DELIMITER ;

LOCK TABLES `o``dd é` WRITE;
UNLOCK TABLES;

-- Dump completed
""".encode()


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_rows_are_counted_however_the_dump_is_cut(size: int) -> None:
    counter = RowCounter("shop")
    text = HEAD + DUMP
    for at in range(0, len(text), size):
        counter.feed(text[at : at + size])
    assert counter.tables is not None
    assert [(table.schema_name, table.name, table.rows) for table in counter.tables] == [
        ("shop", "o`dd é", 0),
        ("shop", "t", 5),
    ]


def test_a_dump_of_several_databases_names_them_and_a_long_row_counts_once() -> None:
    counter = RowCounter("")
    counter.feed(HEAD + b"\nUSE `a`;\nLOCK TABLES `t` WRITE;\nINSERT INTO `t` (`id`, `v`) VALUES (1,'")
    for _ in range(30):
        counter.feed(b"f" * 50_000)
    counter.feed(b"'),\n(2,'b');\nUNLOCK TABLES;\nUSE `b`;\nLOCK TABLES `t` WRITE;\nUNLOCK TABLES;\n")
    assert counter.tables is not None
    assert [(table.schema_name, table.rows) for table in counter.tables] == [("a", 2), ("b", 0)]


def test_dumps_of_versions_that_write_several_rows_in_a_line_are_not_counted() -> None:
    counter = RowCounter("shop")
    counter.feed(HEAD.replace(b"10.11.19", b"10.3.39") + DUMP)
    assert counter.tables is None
