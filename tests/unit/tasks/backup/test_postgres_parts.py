"""How the tables of a database are put into the parts of its dump, and what the manifest says of each part."""

import random

from tasks.backup.fingerprint import DatabaseContent
from tasks.backup.manifest import CatalogFacts, SequenceFacts, TableFacts
from tasks.backup.sources.postgres_dump import SizedTable, dump_parts, grouped


def _drawn(draw: random.Random) -> list[SizedTable]:
    return [
        SizedTable(f"s{draw.randrange(3)}", f"t{number}", int(10 ** draw.uniform(0, 9)) - 1, f"pattern-{number}")
        for number in range(draw.randrange(60))
    ]


def test_each_table_is_in_one_group_and_the_groups_are_of_about_one_size() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        tables, groups = _drawn(draw), draw.randint(2, 16)
        found = grouped(tables, groups)
        assert sorted(each for group in found for each in group) == sorted(tables)
        assert len(found) == groups
        sizes = [sum(each.size_bytes for each in group) for group in found]
        mean = sum(sizes) / groups
        assert max(sizes) <= mean + max([each.size_bytes for each in tables], default=0)
        # What is listed on a command line is bounded, whatever the number of tables is.
        assert sum(len(group) for group in found[1:]) <= 100 * groups


def test_each_table_is_dumped_by_one_part_and_left_out_by_the_rest() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        tables, pipes = _drawn(draw), draw.randint(2, 16)
        parts = dump_parts(tables, pipes)
        assert [part.section for part in parts] == ["pre-data", *["data"] * (len(parts) - 2), "post-data"]
        assert [part.file_name for part in parts] == sorted({part.file_name for part in parts})
        rest = parts[-3]
        dumped = [option.partition("=")[2] for part in parts for option in part.options if "--table=" in option]
        left_out = [option.partition("=")[2] for option in rest.options if "--exclude-table-data=" in option]
        assert sorted(dumped) == sorted(set(left_out))
        assert all(len(part.options) > 1 for part in parts[1:-3])


def test_the_parts_say_together_what_is_known_of_the_database_and_nothing_twice() -> None:
    tables = _drawn(random.Random(7))
    facts = tuple(TableFacts(schema_name=each.schema_name, name=each.name, rows=1) for each in tables)
    large_objects = TableFacts(schema_name="pg_catalog", name="pg_largeobject_metadata", rows=3)
    known = DatabaseContent(
        (*facts, large_objects),
        (SequenceFacts(schema_name="s", name="q", low=1, high=2),),
        (CatalogFacts(kind="view", schema_name="s", count=1, hash="1"),),
    )
    found = [part.content(known) for part in dump_parts(tables, 4)]
    said = [table for each in found for table in each.tables or ()]
    assert sorted(said, key=repr) == sorted(known.tables or (), key=repr)
    assert [each.sequences for each in found if each.sequences is not None] == [known.sequences]
    assert [each.catalog for each in found if each.catalog is not None] == [known.catalog]
    assert large_objects in (found[-2].tables or ())
    assert all(part.content(DatabaseContent()) == DatabaseContent() for part in dump_parts(tables, 4))
