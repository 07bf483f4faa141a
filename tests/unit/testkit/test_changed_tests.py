import pytest

from testkit.changed_tests import touched_tests

SOURCES = {
    "tests/conftest.py": "",
    "tests/unit/test_docs.py": "",
    "tests/unit/node/state/test_claims.py": "from node.state.claims import claim",
    "tests/unit/node/state/test_codec.py": "from node.state import codec",
    "tests/unit/node/state/given.py": "from node.state.value import State",
    "tests/unit/node/duty/test_decide.py": "from tests.unit.node.state.given import history",
    "tests/unit/spark_tasks/files/test_files.py": "def test_it():\n    import spark_tasks.files.exact",
    "tests/unit/tasks/definition/test_spec.py": "import tasks.definition.spec",
    "tests/integration/test_raft.py": "from testkit.cluster import Cluster",
    "tests/integration/whole/conftest.py": "",
    "tests/integration/whole/test_sets.py": "",
    "testkit/cluster.py": "from node.client import Client",
}
ALL = "tests/unit/test_docs.py"
STATE = ["tests/unit/node/state/test_claims.py", "tests/unit/node/state/test_codec.py"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param([], [], id="nothing is changed"),
        pytest.param(["docs/tutorial.md"], [ALL], id="a document: tests of the whole tree"),
        pytest.param(["node/state/claims.py"], [*STATE, ALL], id="its folder's tests"),
        pytest.param(["node/state/value.py"], ["tests/unit/node/duty/test_decide.py", *STATE, ALL], id="by a helper"),
        pytest.param(["node/state/__init__.py"], [*STATE, ALL], id="a package"),
        pytest.param(["node/client.py"], ["tests/integration/test_raft.py", ALL], id="no tests beside it: by testkit"),
        pytest.param(["node/state/gone.py"], [*STATE, ALL], id="a module that was deleted"),
        pytest.param(
            ["spark_tasks/files/exact.py"], ["tests/unit/spark_tasks/files/test_files.py", ALL], id="the folder above"
        ),
        pytest.param(
            ["tasks/definition/spec.py"], ["tests/unit/tasks/definition/test_spec.py", ALL], id="import of a module"
        ),
        pytest.param(["node/state/schema.json"], [*STATE, ALL], id="what is no module"),
        pytest.param(
            ["tests/unit/tasks/definition/test_spec.py"], ["tests/unit/tasks/definition/test_spec.py", ALL], id="a test"
        ),
        pytest.param(["tests/unit/tasks/test_gone.py"], [ALL], id="a test that was deleted"),
        pytest.param(
            ["tests/integration/whole/conftest.py"], ["tests/integration/whole/test_sets.py", ALL], id="a conftest"
        ),
    ],
)
def test_what_a_change_touches(changed: list[str], expected: list[str]) -> None:
    assert touched_tests(changed, SOURCES) == sorted(expected)


def test_a_change_of_every_conftest_touches_every_test() -> None:
    assert len(touched_tests(["tests/conftest.py"], SOURCES)) == sum("/test_" in path for path in SOURCES)
