"""Attempts in real processes: how they begin, how they are asked to stop, and how they end."""

import os
import re
import statistics
import time
from pathlib import Path

import pytest

from node.execution import process_tree
from node.execution.attempt_events import AttemptEnded, AttemptStarted, Progressed
from node.execution.limits import Amounts
from node.execution.order import AttemptLimits
from tasks.command.ctx import VARIABLES
from testkit.execution.attempts import Attempts, play, until
from testkit.execution.kinds_for_tests import shifted

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("kinds_for_tests")]

QUICK = AttemptLimits(stop_s=0.2, hand_over_s=0.2, most=Amounts(log=100_000))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SECRET", "between members")


def test_a_command_runs_and_its_output_is_logged(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.command("sh", "-c", "echo out; echo err >&2; pwd")
        ended = await made.ended(order)
        assert ended == AttemptEnded(order.run_id, order.token, "succeeded", {"exit_code": 0})
        assert made.log(order).splitlines()[:2] == ["out", "err"]
        assert made.log(order).splitlines()[2].startswith(str(tmp_path / "scratch"))
        fails = made.command("sh", "-c", "exit 3")
        failed = await made.ended(fails)
        assert made.log(fails) == "CommandFailed: 'sh' ended with exit code 3\n", "no traceback beside the message"
        assert (failed.end, failed.error, failed.retry) == (
            "failed",
            "CommandFailed: 'sh' ended with exit code 3",
            True,
        )
        absent = await made.ended(made.command("no-such-program"))
        assert (
            absent.error == "CommandFailed: cannot start 'no-such-program': no-such-program: No such file or directory"
        )
        nowhere = await made.ended(made.command("true", params={"cwd": "/no/such/folder"}))
        assert "/no/such/folder: No such file" in str(nowhere.error)
        (tmp_path / "pg").write_text("hunter22\n")
        env = {"A": "plain", "PGPASSWORD": {"secret": "pg"}}
        quiet = made.command("sh", "-c", "echo $A $PGPASSWORD; env | grep -o ^ROTA_.*= | sort", params={"env": env})
        assert (await made.ended(quiet)).end == "succeeded"
        assert made.log(quiet).splitlines() == ["plain [secret]", *(f"{name}=" for name in sorted(VARIABLES))]

    play(tmp_path, scene)


def test_a_command_saves_checkpoints_and_metrics_until_it_is_fenced(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        script = "set -e; cat $ROTA_CHECKPOINT_FILE; for n in 2 3; do echo $n | rota ctx checkpoint -; done"
        order = made.command("sh", "-c", f"{script}; rota ctx result rows=3", checkpoint=b"\x01")
        for packed in (b"\x02", b"\x03"):
            asked = await made.asked()
            assert asked.data == packed
            made.runner.checkpoint_done(order.run_id, order.token, asked.sequence, "ok")
        assert (await made.ended(order)).result == {"rows": 3, "exit_code": 0}
        assert made.log(order) == "1\n"

        order = made.command("sh", "-c", "set -e; echo 1 | rota ctx checkpoint -; echo went on")
        asked = await made.asked()
        made.runner.checkpoint_done(order.run_id, order.token, asked.sequence, "fenced")
        assert (await made.ended(order)).end == "failed"
        assert f"checkpoint refused, fenced: another attempt has taken over {order.run_id}" in made.log(order)
        assert "went on" not in made.log(order)

    play(tmp_path, scene)


def test_a_cancelled_command_gets_sigterm_and_one_that_ignores_it_is_killed(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        polite = made.command("sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
        await made.started(polite)
        await until(lambda: "ready" in made.log(polite))
        made.runner.cancel(polite.run_id, polite.token)
        assert (await made.ended(polite)).end == "cancelled"
        assert "bye" in made.log(polite)
        assert re.search(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO asked to stop", made.log(polite), re.MULTILINE)

    play(tmp_path / "polite", scene)

    async def second(made: Attempts) -> None:
        stubborn = made.command("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
        await made.started(stubborn)
        await until(lambda: "ready" in made.log(stubborn))
        made.runner.cancel(stubborn.run_id, stubborn.token)
        ended = await made.ended(stubborn)
        assert (ended.end, ended.error) == ("cancelled", "cancelled; it did not stop within 0.2 s and was killed")

    play(tmp_path / "stubborn", second, QUICK)


def test_what_a_worker_is_and_is_given(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        seen = await made.ended(made.act("see", env={"EXTRA": "1"}, checkpoint=b"\x07"))
        assert seen.result is not None
        assert seen.result.pop("fds") <= 8, "the supervisor's descriptors are closed in it"
        assert seen.result == {
            "nice": min(19, os.nice(0) + 10),
            "oom": 500,
            "cwd": "True",
            "rota": [],
            "extra": "1",
            "fire_at": "1970-01-01T00:00:00+00:00",
            "checkpoint": 7,
        }
        last = await made.ended(made.act("see", backfill=True))
        assert last.result is not None
        assert last.result["nice"] == 19, "what is of a backfill gives way to all other work"

    play(tmp_path, scene)


def test_requests_to_stop(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("stops")
        await made.started(order)
        made.runner.cancel(order.run_id, order.token)
        assert (await made.ended(order)).end == "cancelled"

        late = await made.ended(made.act("stops", timeout_s=0.05))
        assert (late.end, late.error) == ("timed_out", "timed out after 0.05 s")

        order = made.act("hands_over")
        await made.started(order)
        made.runner.hand_over(order.run_id, order.token)
        asked = await made.asked()
        made.runner.checkpoint_done(order.run_id, order.token, asked.sequence, "ok")
        assert (await made.ended(order)).end == "handed_over"

        order = made.act("family")
        family = await made.family(order)
        made.runner.kill(order.run_id, order.token)
        assert (await made.ended(order)).end == "handed_over"
        assert not any(process_tree.process(pid) for pid in family), (
            "including processes that left the session or cleared the environment"
        )

    play(tmp_path, scene)


def test_a_worker_that_does_not_stop_is_killed_with_its_descendants(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("deaf")
        family = await made.family(order)
        made.runner.cancel(order.run_id, order.token)
        ended = await made.ended(order)
        assert (ended.end, ended.error) == ("cancelled", "cancelled; it did not stop within 0.2 s and was killed")
        assert not any(process_tree.process(pid) for pid in family)

    play(tmp_path, scene, QUICK)


def test_an_attempt_cancelled_before_its_start_ends_as_cancelled(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("stops")
        made.runner.cancel(order.run_id, order.token)
        assert (await made.ended(order)).end == "cancelled"
        order = made.act("stops")
        made.runner.hand_over(order.run_id, order.token)
        assert (await made.ended(order)).end in {"not_started", "handed_over"}

    play(tmp_path, scene)


def test_the_example_package_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        params = {"to": 5, "every_s": 0, "checkpoint_every": 2}
        order = made.launch(params, "rota_hello.count:Count", checkpoint=b"\x02")
        asked = await made.asked()
        assert asked.data == b"\x04"
        made.runner.checkpoint_done(order.run_id, order.token, asked.sequence, "ok")
        assert (await made.ended(order)).result == {"counted": 5, "here": 3}

    play(tmp_path, scene)


def test_a_checkpoint_call_returns_after_its_answer(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("checkpoints")
        asked = await made.asked()
        made.runner.checkpoint_done(order.run_id, order.token, asked.sequence, "unknown")
        again = await made.asked()
        assert (again.data, again.sequence > asked.sequence) == (asked.data, True)
        made.runner.checkpoint_done(order.run_id, order.token, again.sequence, "ok")
        assert (await made.ended(order)).result == {"checkpoint": {"batch": [1, 2]}}

        order = made.act("checkpoints")
        asked = await made.asked()
        made.runner.checkpoint_done(order.run_id, order.token, asked.sequence, "fenced")
        fenced = await made.ended(order)
        assert fenced.end == "failed"
        assert str(fenced.error).startswith("Fenced: another attempt has taken over task~")

        large = await made.ended(made.act("too_much"))
        assert "65536 at most" in str(large.error)

    play(tmp_path, scene)


def test_a_failure_that_a_retry_would_repeat_is_not_retried(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        cases = [
            (made.launch({}, "no_such_module:Kind"), "KindError: the kind at no_such_module:Kind cannot be loaded"),
            (made.launch({"argv": "x"}, "tasks.command.kind:Command"), "InvalidParams: params.argv: "),
            (
                made.act("see", params={"secret": {"secret": "a"}}, like={"what": "see", "secret": {"secret": "b"}}),
                "InvalidParams: params: the name of a secret says what the task reaches",
            ),
            (made.act("see", params={"secret": {"secret": "absent"}}), "MissingSecret: secret 'absent': cannot read"),
            (made.act("see", params={"secret": {"env": "ROTA_SECRET"}}), "MissingSecret: variable 'ROTA_SECRET'"),
            (made.act("hopeless"), "Unretryable: the table is not there"),
            (made.act("bad_result"), "InvalidResult: a kind must return JSON types only"),
            (made.act("large_result"), "InvalidResult: the result has 100"),
        ]
        found = {event.run_id: event for event in [await made.until(AttemptEnded) for _ in cases]}
        for order, error in cases:
            ended = found[order.run_id]
            assert (ended.end, ended.retry) == ("failed", False), ended
            assert str(ended.error).startswith(error)
        begun = {event.run_id for event in made.seen if isinstance(event, AttemptStarted)}
        assert begun == {order.run_id for order, _ in cases[5:]}, "the first five did not begin"

    play(tmp_path, scene)


def test_what_does_not_answer_is_no_failure_of_the_attempt(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("finds_away")
        ended = await made.ended(order)
        assert (ended.end, ended.error, ended.retry) == ("away", "Away: db.internal does not answer", True)
        assert "Traceback" not in made.log(order), "the sentence says it all"

    play(tmp_path, scene)


def test_failures_are_reported_in_one_line_and_logged_in_full(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("fails")
        ended = await made.ended(order)
        assert (ended.error, ended.retry) == ("ValueError: row 7", True)
        assert "Traceback" in made.log(order)
        assert (await made.ended(made.act("exits"))).error == "SystemExit: 3"
        assert (await made.ended(made.act("vanishes"))).error == (
            "the worker ended with exit code 3 before its kind returned"
        )
        assert str((await made.ended(made.act("dies"))).error).startswith("killed by SIGKILL")
        misspoken = await made.ended(made.act("misspeaks"))
        assert misspoken.end == "failed"
        assert str(misspoken.error).startswith("the worker sent an invalid frame: not a frame")

    play(tmp_path, scene)


def test_secrets_are_redacted_from_logs_errors_and_results(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        (tmp_path / "pg").write_text("hunter22\n")
        secret = {"params": {"secret": {"secret": "pg"}}}
        order = made.act("tells", **secret)
        assert (await made.ended(order)).result == {"url": "u:[secret]@h"}
        assert made.log(order).count("[secret]") == 4
        order = made.act("raises_it", **secret)
        assert (await made.ended(order)).error == "OSError: cannot log in with [secret]"
        assert "hunter22" not in made.log(order)
        kept = await made.ended(made.act("keeps_it", **secret))
        assert "may not be replicated" in str(kept.error)
        order = made.act("tells", params={"secret": {"env": "PGPASS"}}, variables={"PGPASS": "from env"})
        assert (await made.ended(order)).end == "succeeded"
        assert "from env" not in made.log(order)

    play(tmp_path, scene)


def test_a_kind_is_given_the_secrets_that_its_params_name_and_no_other(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        for name in ("pg", "other"):
            (tmp_path / name).write_text(f"value of {name}")
        variables = {"PGPASS": "from env"}
        for asked, shown in (
            ({"secret": "other"}, "secret 'other'"),
            ("other", "secret 'other'"),
            ({"env": "PGPASS"}, "variable 'PGPASS'"),
        ):
            order = made.act("asks", params={"secret": {"secret": "pg"}, "asked": asked}, variables=variables)
            ended = await made.ended(order)
            assert (ended.end, ended.retry, ended.error) == (
                "failed",
                False,
                f"MissingSecret: {shown} is not named in the task's params: a kind is given the secrets that the "
                "params refer to, and no other",
            )
            assert "value of" not in made.log(order)
        for asked, why in (
            ({"secret": "../pg"}, "'../pg' is not the name of a secret"),
            ({"env": "A=B"}, "'A=B' is not the name of a variable"),
            ({"file": "pg"}, "a reference to a secret must be"),
        ):
            ended = await made.ended(made.act("asks", params={"asked": asked}))
            assert (ended.retry, str(ended.error).startswith(f"MissingSecret: {why}")) == (False, True), ended.error
        for named in ("pg", {"secret": "pg"}):
            order = made.act("asks", params={"secret": {"secret": "pg"}, "asked": named})
            assert (await made.ended(order)).result == {"length": len("value of pg")}

    play(tmp_path, scene)


def test_a_secret_that_was_changed_is_seen_by_an_attempt_that_runs(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        (tmp_path / "pg").write_text("before")
        order = made.act("asks_again", params={"secret": {"secret": "pg"}})
        ended = await made.ended(order)
        assert ended.result == {"lengths": [6, 14]}
        assert "after-rotating" not in made.log(order)

    play(tmp_path, scene)


@pytest.mark.parametrize("source", ["env", "secret"])
def test_a_missing_secret_fails_the_attempt_at_its_start(tmp_path: Path, source: str) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("leaves_a_mark", params={"secret": {source: "ABSENT"}}, variables={"SET": "a value"})
        ended = await made.ended(order)
        why = {
            "env": "variable 'ABSENT' is not listed in ROTA_ENV_ALLOW on this member",
            "secret": f"secret 'ABSENT': cannot read {tmp_path}/ABSENT: No such file or directory",
        }
        assert (ended.error, ended.retry) == (f"MissingSecret: {why[source]}", False)
        assert not (tmp_path / "mark").exists()

    play(tmp_path, scene)


def test_a_worker_holds_nothing_of_where_secrets_come_from(tmp_path: Path) -> None:
    """Neither the folder, nor what the node recognizes its own secret by, nor a variable that it has not asked for."""

    async def scene(made: Attempts) -> None:
        vault = tmp_path / "vault-81f5"
        vault.mkdir()
        (vault / "pg").write_text("correct-horse")
        sought = [shifted(text) for text in ("vault-81f5", "IS_ALLOWED", "is-the-value", "correct-horse")]
        order = made.act(
            "remembers",
            params={"secret": {"secret": "pg"}, "asked": sought},
            secrets_dir=vault,
            variables={"IS_ALLOWED": "is-the-value"},
        )
        assert (await made.ended(order)).result == {"found": [False, False, False, True]}

    play(tmp_path, scene)


def test_a_worker_that_asks_for_two_secrets_at_once_is_no_worker(tmp_path: Path) -> None:
    """A supervisor looks up one at a time, so that a worker cannot have it start a thousand threads."""

    async def scene(made: Attempts) -> None:
        (tmp_path / "pg").write_text("a value")
        ended = await made.ended(made.act("asks_in_a_flood", params={"secret": {"secret": "pg"}}))
        assert "a second request for a secret before the first was answered" in str(ended.error)

    play(tmp_path, scene)


def test_progress_is_coalesced_and_the_last_report_arrives(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("counts")
        assert (await made.ended(order)).result == {"rows": 20_000}
        told = [event for event in made.seen if isinstance(event, Progressed)]
        assert len(told) < 20
        assert (told[-1].done, told[-1].total, told[-1].unit) == (20_000, 20_000, "rows")

    play(tmp_path, scene)


def test_a_log_is_truncated_at_its_limit_and_says_so_once(tmp_path: Path) -> None:
    async def scene(made: Attempts) -> None:
        order = made.act("prints_much")
        ended = await made.ended(order)
        assert (ended.end, ended.log_truncated) == ("succeeded", True)
        log = made.log(order)
        assert 100_000 < len(log) < 100_200
        assert log.endswith("\n[the log is truncated here, at 97.7 KiB, this node's limit (ROTA_LOG_BYTES)]\n")
        assert log.count("truncated") == 1

    play(tmp_path, scene, QUICK)


def test_print_how_long_a_command_takes_to_start(tmp_path: Path) -> None:
    """Printed, not asserted: other processes of the machine influence it."""

    async def scene(made: Attempts) -> None:
        taken_ms: list[float] = []
        for _ in range(20):
            began_s = time.perf_counter()
            order = made.command("true")
            await made.started(order)
            taken_ms.append((time.perf_counter() - began_s) * 1000)
            await made.ended(order)
        p50, p95 = statistics.median(taken_ms), statistics.quantiles(taken_ms, n=20)[18]
        print(f"\nlaunch -> Started of a command, 20 times: p50 {p50:.1f} ms, p95 {p95:.1f} ms")

    play(tmp_path, scene)
