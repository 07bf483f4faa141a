"""Sets of files: which tasks they are, what pruning deletes, and what it refuses."""

import pytest

from node.cli.sets import (
    WrongSet,
    children_first,
    gone_from_files,
    parents_first,
    refuse_orphans,
    sets_to_prune,
    with_set,
)
from node.cli.task_files import TaskFromFile


def of(**fields: object) -> TaskFromFile:
    return TaskFromFile({"kind": "x", **fields}, f"a.yaml: task {fields.get('name')!r}")


def test_the_option_puts_each_task_into_the_set() -> None:
    assert [task.definition["set"] for task in with_set([of(name="a"), of(name="b", set="site")], "site")] == [
        "site"
    ] * 2
    assert with_set([of(name="a")], None)[0].definition == {"kind": "x", "name": "a"}


def test_a_task_of_another_set_is_not_put_into_this_one() -> None:
    with pytest.raises(WrongSet, match=r"a.yaml: task 'b' is of the set 'other', and --set says 'site'"):
        with_set([of(name="b", set="other")], "site")


def test_the_sets_are_those_that_the_files_name() -> None:
    assert sets_to_prune([of(name="a", set="y"), of(name="b", set="x")], None, may_be_empty=False) == ["x", "y"]
    assert sets_to_prune([], "x", may_be_empty=True) == ["x"]


@pytest.mark.parametrize(
    ("tasks", "name", "may_be_empty", "said"),
    [
        ([], "x", False, "add --allow-empty"),
        ([], None, True, "name it with --set NAME"),
        ([of(name="a", set="x"), of(name="b"), of(name="c")], None, False, "task 'b' and 1 more belongs to no set"),
    ],
)
def test_what_is_most_likely_a_mistake_is_refused(
    tasks: list[TaskFromFile], name: str | None, may_be_empty: bool, said: str
) -> None:
    with pytest.raises(WrongSet, match=said):
        sets_to_prune(tasks, name, may_be_empty=may_be_empty)


def test_what_the_files_no_longer_have_is_surplus() -> None:
    registered = [{"name": name, "version": 1, "set": "x"} for name in "cab"]
    assert [task["name"] for task in gone_from_files(registered, "x", {"b"})] == ["a", "c"]


def test_a_task_of_another_set_or_of_none_is_not_surplus() -> None:
    """Were one among the answers, as from a node that does not filter, it would be deleted."""
    assert gone_from_files([{"name": "a", "set": "y"}, {"name": "b", "set": None}, {"name": "c"}], "x", ()) == []


@pytest.mark.parametrize("name", ["", "a b", "a/b", "site\n", "-x"])
def test_a_name_that_no_set_can_have_is_refused(name: str) -> None:
    """The name may be that of a variable that is not set: the API takes an empty filter for none."""
    with pytest.raises(WrongSet, match="is not the name of a set"):
        with_set([], name)


def test_parents_are_registered_first_and_children_pruned_first() -> None:
    tasks = [of(name="d", after=["b", {"task": "c"}]), of(name="b", after=["a"]), of(name="c"), of(name="a"), of()]
    assert [task.definition.get("name") for task in parents_first(tasks)] == ["a", "b", "c", "d", None]
    registered = [{"name": task.definition["name"], "after": task.definition.get("after", [])} for task in tasks[:4]]
    assert [task["name"] for task in children_first(registered)] == ["d", "c", "b", "a"]
    ring = [of(name="a", after=["b"]), of(name="b", after=["a"])]
    assert sorted(str(task.definition["name"]) for task in parents_first(ring)) == ["a", "b"], "the cluster refuses it"


def test_what_others_that_stay_come_after_is_not_deleted() -> None:
    children = {"a": ["b", "hand"], "b": ["c"]}
    doomed = [{"name": "a"}, {"name": "b"}]

    def orphans(*definitions: dict[str, object]) -> str:
        with pytest.raises(WrongSet) as refused:
            refuse_orphans(doomed, definitions, lambda task: children.get(task, []))
        return str(refused.value)

    assert orphans() == (
        "a would be deleted, and hand comes after it: change or delete that first, or keep a in the files"
    )
    children["a"].remove("hand")
    assert "b would be deleted, and c comes after it" in orphans()
    assert "b would be deleted, and c, d come after it" in orphans(
        {"name": "c", "after": ["b"]}, {"name": "d", "after": [{"task": "b", "on": "failed"}]}
    )
    refuse_orphans(doomed, [{"name": "c"}], lambda task: children.get(task, []))
