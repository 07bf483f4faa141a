"""What is left of Spark's errors: a sentence, never a stack of the JVM."""

import pytest

from spark_tasks.etl.errors import BatchAway, BatchFailed, BatchUnfit, failure
from spark_tasks.spark.causes import cause
from tasks.errors import Away, Unretryable

STACK = "".join(f"\tat org.apache.spark.scheduler.Task{line}.run(Task.scala:{line})\n" for line in range(40))

FULL = (
    "An error occurred while calling o89.save.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
    "Task 3 in stage 4.0 failed 1 times, most recent failure: Lost task 3.0 in stage 4.0 (TID 9) (localhost executor "
    "driver): org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/scratch/x. "
    f"SQLSTATE: 58030\n{STACK}Caused by: java.io.IOException: No space left on device\n{STACK}"
)
MEMORY = (
    "An error occurred while calling o46.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost "
    f"executor driver): java.lang.OutOfMemoryError: Java heap space\n{STACK}\nDriver stacktrace:\n{STACK}"
)
LOST = (
    "Job aborted due to stage failure: Task 1 in stage 2.0 failed 4 times, most recent failure: Lost task 1.3 in stage "
    "2.0 (TID 8) (10.0.0.7 executor 1): ExecutorLostFailure (executor 1 exited caused by one of the running tasks) "
    f"Reason: worker lost\n{STACK}"
)
CAST = (
    '[CAST_INVALID_INPUT] The value \'abc\' of the type "STRING" cannot be cast to "INT" because it is malformed. '
    "SQLSTATE: 22018\n== SQL (line 2, position 10) ==\nSELECT id,\n  CAST(amount AS INT) AS amount FROM source\n"
    f"  ^^^^^^^^^^^^^^^^^^^\n\n{STACK}"
)
COLUMN = (
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot be "
    "resolved. Did you mean one of the following? [`id`, `n`]. SQLSTATE: 42703; line 1 pos 7;\n'Project ['nope]\n"
)
PYTHON = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in stage "
    "1.0 (TID 1) (localhost executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call "
    'last):\n  File "/x/worker.py", line 9, in main\n    process()\nValueError: row 7: no such carrier\n\n' + STACK
)

PROGRAM = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost task 0.3 in stage "
    '0.0 (TID 3) (10.0.0.7 executor 0): java.io.IOException: Cannot run program "/nowhere/python3": error=2, No such '
    f"file or directory\n{STACK}Caused by: java.io.IOException: error=2, No such file or directory\n{STACK}"
)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (PROGRAM, 'Cannot run program "/nowhere/python3": error=2, No such file or directory'),
        (FULL, "IOException: No space left on device"),
        (MEMORY, "OutOfMemoryError: Java heap space: ROTA_SPARK_MEMORY sets the heap of a driver"),
        (LOST, "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: worker lost"),
        (PYTHON, "ValueError: row 7: no such carrier"),
        ("An error occurred while calling o1.x. Answer from Java side is empty", "the JVM of Spark has ended"),
        ("something else\nwith\nlines", "something else"),
    ],
)
def test_a_job_s_error_is_one_sentence(said: str, sentence: str) -> None:
    found = cause(said)
    assert found.said.startswith(sentence)
    assert "\n" not in found.said
    assert "\tat " not in found.said


def test_an_error_of_a_query_names_the_value_and_the_part_of_the_query() -> None:
    error = failure(Exception(CAST))
    assert isinstance(error, BatchUnfit)
    assert str(error) == (
        'CAST_INVALID_INPUT: The value \'abc\' of the type "STRING" cannot be cast to "INT" because it is malformed. '
        "(in CAST(amount AS INT))"
    )
    unresolved = failure(Exception(COLUMN))
    assert type(unresolved) is BatchFailed
    assert str(unresolved).startswith("UNRESOLVED_COLUMN.WITH_SUGGESTION: A column, variable, or function parameter")
    assert "Project" not in str(unresolved)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        ("spark_tasks.postgres.session.ServerAway: connection refused", BatchAway),
        ("spark_tasks.storage.errors.StoreAway: s3://lake: the store does not answer", BatchAway),
        ("spark_tasks.postgres.session.QueryUnfit: value too long (22001)", BatchUnfit),
        ("tasks.places.place.NoBucket: s3://lake: the bucket 'lake' does not exist", BatchUnfit),
        ("spark_tasks.postgres.session.QueryFailed: deadlock detected (40P01)", BatchFailed),
        ("spark_tasks.gone.Nothing: x", BatchFailed),
    ],
)
def test_what_this_project_raises_on_executors_keeps_its_meaning(raised: str, kind: type[BatchFailed]) -> None:
    error = failure(Exception(f"Job aborted\nTraceback (most recent call last):\n  File x\n{raised}\n\n{STACK}"))
    assert type(error) is kind
    assert str(error) == raised.rpartition("session.")[2].rpartition("errors.")[2].removeprefix(
        "tasks.places.place."
    ).removeprefix("spark_tasks.gone.")
    assert isinstance(error, Away) == (kind is BatchAway)
    assert isinstance(error, Unretryable) == (kind is BatchUnfit)
