"""The pages of a task and of a run over a real HTTP server, and the form for a definition."""

import re
from datetime import date
from html import unescape

import pytest

from node.peer.protocol import RunProgress
from node.state.attempts import Checkpoint, Finish
from node.state.members import MarkDown, TakeLead
from node.state.registry import Put, PutTasks
from node.state.value import RULES
from tasks.definition.calendar_times import day_words
from tasks.definition.run import AttemptEnd
from tasks.definition.spec import Spec
from tasks.installed_kinds import InstalledKinds
from testkit.http.http_cluster import Servers, on_loop, servers
from testkit.http.web_visitor import Visitor, text_of

pytestmark = pytest.mark.integration


async def ended(served: Servers, task: str, result: dict[str, object] | None, error: str | None = None) -> str:
    run_id = await served.start_run(task)
    token = served.claim(run_id)
    served.cluster.now_us += 1_500_000
    state: AttemptEnd = "succeeded" if error is None else "failed"
    served.cluster.ok(Finish(served.cluster.now_us, run_id, token, state, result, error, retry=False))
    return run_id


@on_loop
async def test_the_tasks_before_and_after_one_are_drawn_with_an_occurrence_on_its_way() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        served.cluster.ok(TakeLead(served.cluster.now_us, "node-1", 1, RULES))
        await served.put_task("alone")
        for name, after in {"a": [], "b": ["a"], "c": [{"task": "b", "on": "ended"}]}.items():
            await served.put_task(name, after=after)
        assert 'id="graph"' not in (await visitor.get("/tasks/alone")).body.decode()
        drawn = (await visitor.get("/tasks/b")).body.decode()
        assert 'aria-label="a: new, it has not run yet, except for backfills"' in drawn
        assert 'href="../tasks/c"' in drawn
        assert 'data-part="../tasks/b/graph?part=graph"' in drawn
        started = (await served.ask("POST", "/v1/tasks/a/runs", json={"downstream": True})).json["run_id"]
        served.claim(started)
        run = await visitor.get(f"/runs/{started}")
        assert f'href="../tasks/a/graph?run_id={started}"' in run.body.decode()
        whole = (await visitor.get(f"/tasks/a/graph?run_id={started}")).body.decode()
        (url,) = re.findall(r'data-part="(?:\.\./)+([^"]+graph[^"]+)"', whole)
        part = (await visitor.part(f"/{unescape(url)}")).body.decode()
        assert part.lstrip().startswith('<section id="graph"')
        assert f'href="../../runs/{started}"' in part
        assert re.search(r'aria-label="c: pending since [^"]+ UTC, waits for b"', part)
        assert "on its way" in part


@on_loop
async def test_a_task_shows_why_it_waits_who_owns_it_when_it_is_due_and_its_runs() -> None:
    async with servers(("node-1", "node-2")) as served:
        visitor = Visitor(served)
        await served.put_task(schedule={"cron": "30 2 * * *", "timezone": "Europe/Paris"})
        await ended(served, "a", {"rows": 1204})
        failed = await ended(served, "a", None, "<b>the disk is full</b>")
        running = await served.start_run("a")
        served.claim(running)
        served.node.reported[running] = RunProgress(3, 12, "files")
        page = await visitor.get("/tasks/a")
        said = text_of(page)
        assert b"<b>the disk" not in page.body
        for words in (
            "copy · 30 2 * * * Europe/Paris · version 1",
            "3 of 12 files",
            "owns it",
            "would be next",
            "the clocks of Europe/Paris go",
            "1.5 s",
            "1,204 rows",
            "the disk is full",
            "name: a kind: copy params: source: x",
        ):
            assert words in said, words
        assert f'href="../runs/{failed}"' in page.body.decode()
        for part, begin in (("now", '<section id="now"'), ("past", '<section id="past"'), ("panel", "<div")):
            reply = await visitor.part(f"/tasks/a?part={part}")
            assert reply.body.decode().lstrip().startswith(begin)
        figures = (await served.get("/tasks/a/figures")).json
        assert (figures["took_s"], figures["good"], figures["unit"]) == ([1.5, 1.5], [True, False], "rows")
        assert figures["amount"] == [1204, None]
        owner = served.cluster.ownership.owner("a") or ""
        other = next(name for name in ("node-1", "node-2") if name != owner)
        served.cluster.ok(MarkDown(served.cluster.now_us, owner, 1, "silent", 0))
        walk = text_of(await visitor.part("/tasks/a?part=now"))
        assert f"{owner} is down" in walk
        assert f"{other} owns it" in walk
        assert (await visitor.get("/tasks/nobody")).status == 404
        assert (await visitor.get("/tasks/a?after=nonsense")).status == 422


@on_loop
async def test_a_task_shows_the_days_that_fall_out_and_the_blackouts_that_hold_it() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        served.cluster.ok(TakeLead(served.cluster.now_us, "node-1", 1, RULES))
        nightly = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
        await served.put_task(schedule=nightly)
        second = (await served.get("/v1/tasks/a/times?count=2")).json["times"][1][:10]
        await served.ask("PUT", "/v1/calendars/closing", json={"dates": [second]})
        await served.put_task(schedule=nightly, calendar={"skip": ["closing", "holidays/DE"]}, labels={"team": "bi"})
        span = {"begins": "2998-01-01T00:00:00Z", "ends": "2999-01-01T00:00:00Z"}
        await served.ask("PUT", "/v1/blackouts/move", json={**span, "labels": {"team": "bi"}})
        await served.ask("PUT", "/v1/blackouts/others", json={**span, "labels": {"team": "ops"}})
        said = text_of(await visitor.get("/tasks/a"))
        assert f"{day_words(date.fromisoformat(second).toordinal())} falls out (closing)" in said
        assert "Its calendars are known until" in said
        assert "The blackout move holds what is new of it from 2998-01-01" in said
        assert "others" not in said


@on_loop
async def test_the_runs_of_a_task_are_shown_page_by_page() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task()
        made = [await ended(served, "a", {}) for _ in range(20)]
        first = (await visitor.get("/tasks/a")).body.decode()
        following = re.search(r'href="\.\./(tasks/a\?after=[^"#]+)#past" rel="next"', first)
        assert following is not None
        second = (await visitor.get("/" + unescape(following[1]))).body.decode()
        shown = re.findall(r'data-run="(\S+) ', first) + re.findall(r'data-run="(\S+) ', second)
        assert shown == made[::-1]


@on_loop
async def test_a_definition_is_checked_and_saved_once_its_changes_were_shown() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task()
        rows = served.cluster.machine

        async def send(text: str, path: str = "/tasks/a/edit", **fields: str) -> tuple[int, str, dict[str, str]]:
            csrf = re.search(r'name="csrf" value="(\w+)"', (await visitor.get("/tasks")).body.decode())
            assert csrf is not None
            reply = await visitor.send(path, {"csrf": csrf[1], "definition": text, **fields})
            hidden = dict(re.findall(r'name="(version|checked)" value="(\w*)"', reply.body.decode()))
            return reply.status, text_of(reply), hidden

        text = "name: a\r\nkind: copy\r\nparams:\r\n  source: y\r\n  times: 0\r\n"
        status, said, _ = await send(text, version="1", step="save")
        assert (status, "params.times line 5" in said) == (422, True)
        # All errors are told at once: those of the definition, and those that the kind finds.
        status, said, _ = await send(text + "weight: none\r\n", version="1")
        assert (status, "2 fields are not right" in said, "weight line 6" in said) == (422, True, True)
        assert rows.state.tasks["a"].version == 1
        # Saving what was not shown shows it.
        status, said, hidden = await send(text.replace("0", "2"), version="1", step="save")
        assert (status, "params.source x y" in said) == (200, True)
        assert rows.state.tasks["a"].version == 1
        # Meanwhile somebody else has changed it.
        await served.put_task(weight=7)
        status, said, conflict = await send(text.replace("0", "2"), step="save", **hidden)
        assert (status, "it has version 2 now, and you began with version 1" in said) == (200, True)
        assert "weight 7 1" in said
        assert rows.state.tasks["a"].spec.weight == 7
        status, _, _ = await send(text.replace("0", "2"), step="save", **conflict)
        assert (status, rows.state.tasks["a"].version, rows.state.tasks["a"].spec.weight) == (303, 3, 1)
        status, said, _ = await send("name: b\nkind: copy\n", version="3")
        assert (status, "must stay a" in said) == (422, True)
        for bad, words in (("a: [", "cannot be read as YAML"), ("- x", "must be one definition")):
            status, said, _ = await send(bad, version="3")
            assert (status, words in said) == (422, True)
        # A new task.
        new = "name: fresh\nkind: copy\nparams: {source: z}\n"
        status, said, hidden = await send(new, "/new")
        assert (status, "name not given fresh" in said) == (200, True)
        status, _, _ = await send(new, "/new", step="save", **hidden)
        assert (status, rows.state.tasks["fresh"].version) == (303, 1)
        status, said, _ = await send(new, "/new")
        assert (status, "fresh is registered already" in said) == (422, True)


@on_loop
async def test_a_run_shows_its_attempts_checkpoint_error_with_last_lines_and_result() -> None:
    async with servers(("node-1", "node-2")) as served:
        visitor = Visitor(served)
        await served.put_task(retry={"attempts": 2, "backoff_s": 60})
        run_id = await served.start_run("a")
        waiting = text_of(await visitor.get(f"/runs/{run_id}"))
        assert "no attempt has been made" in waiting
        token = served.claim(run_id, "node-2")
        served.write_log("node-2", run_id, "".join(f"line {number}\n" for number in range(40)) + "<i>boom</i>\n")
        served.cluster.ok(Checkpoint(served.cluster.now_us, run_id, token, b"\x81\xa4done\x03"))
        served.nodes["node-2"].reported[run_id] = RunProgress(30, 120, "rows")
        live = await visitor.get(f"/runs/{run_id}")
        assert 'data-live="yes"' in live.body.decode()
        assert "30 of 120 rows 25 %" in text_of(live)
        assert '{ "done": 3 }' in text_of(live)
        served.cluster.now_us += 2_000_000
        served.cluster.ok(Finish(served.cluster.now_us, run_id, token, "failed", None, "Boom: it broke", retry=True))
        failed = await visitor.part(f"/runs/{run_id}?part=now")
        said = text_of(failed)
        assert "Boom: it broke" in said
        assert "The last lines of attempt 1 on node-2: line 29" in said
        assert "<i>boom</i>" in said
        assert b"<i>boom" not in failed.body
        assert "next attempt" in said
        await served.stop("node-2")
        assert "Boom: it broke" in text_of(await visitor.get(f"/runs/{run_id}"))
        served.cluster.now_us += 60_000_000
        token = served.claim(run_id)
        result = {"rows": 1204, "bytes": 2_500_000, "expect": {"positive": 0}, "parts": [{"file": "a", "rows": 2}]}
        served.cluster.ok(Finish(served.cluster.now_us, run_id, token, "succeeded", result, None, retry=False))
        over = await visitor.get(f"/runs/{run_id}")
        said = text_of(over)
        for words in ("rows 1,204", "bytes 2.38 MiB", "expect.positive 0", "Parts file rows a 2", "Run again"):
            assert words in said, words
        assert "Boom: it broke" in said, "of the first attempt"
        assert (await visitor.get("/runs/nobody")).status == 404


@on_loop
async def test_what_was_typed_stays_when_it_cannot_be_saved() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task()
        before = (await visitor.get("/tasks/a/edit")).body.decode()
        csrf = re.findall(r'name="csrf" value="(\w+)"', before)[-1]
        typed = unescape(re.findall(r"<textarea[^>]*>\s*([^<]*)</textarea>", before)[0]) + "weight: 7\n"
        form = {"definition": typed, "version": "1", "step": "check"}
        stale = await visitor.send("/tasks/a/edit", {**form, "csrf": "f" * 64})
        assert (stale.status, "this form is of an earlier session" in text_of(stale)) == (403, True)
        assert "weight: 7" in stale.body.decode()
        csrf = re.findall(r'name="csrf" value="(\w+)"', stale.body.decode())[-1]
        checked = await visitor.send("/tasks/a/edit", {**form, "csrf": csrf})
        assert "Save" in text_of(checked)
        assert (await served.ask("DELETE", "/v1/tasks/a")).status == 204
        gone = await visitor.send("/tasks/a/edit", {**form, "csrf": csrf, "step": "save"})
        assert (gone.status, "has deleted it" in text_of(gone)) == (200, True)
        shown = re.findall(r'name="checked" value="(\w+)"', gone.body.decode())[0]
        again = {**form, "csrf": csrf, "step": "save", "checked": shown, "version": "0"}
        assert (await visitor.send("/tasks/a/edit", again)).status in (200, 303)
        assert (await served.get("/v1/tasks/a")).json["weight"] == 7


@on_loop
async def test_a_task_is_deleted_in_the_version_that_was_shown_and_its_runs_are_cancelled() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task(set="site")
        run_id = await served.start_run()
        shown = await visitor.get("/tasks/a")
        assert "Delete … a Deletes version 1 of the definition and cancels its runs" in text_of(shown)
        assert "It is kept in the set site : the next rota apply of its files registers it again" in text_of(shown)
        csrf = re.findall(r'name="csrf" value="(\w+)"', shown.body.decode())[-1]
        await served.put_task(weight=2)
        form = {"csrf": csrf, "version": "1"}
        for wrong in (form, {"csrf": csrf}):
            refused = await visitor.send("/tasks/a/delete", wrong)
            assert (refused.status, "a is" in text_of(refused), "in version 2" in text_of(refused)) == (412, True, True)
        assert (await visitor.send("/tasks/a/delete", {"version": "2"})).status == 403
        gone = await visitor.send("/tasks/a/delete", {**form, "version": "2"})
        assert (gone.status, gone.headers["Location"]) == (303, "../../tasks")
        assert not served.cluster.machine.state.tasks
        assert (await served.get(f"/v1/runs/{run_id}")).json["state"] == "cancelled"
        assert (await visitor.send("/tasks/a/delete", {**form, "version": "2"})).status == 404


@on_loop
async def test_a_duplicate_begins_with_the_same_definition_under_a_free_name_and_in_no_set() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task(set="site", schedule={"every_s": 60})
        await served.put_task("a-copy")
        assert 'href="../new?like=a"' in (await visitor.get("/tasks/a")).body.decode()
        page = (await visitor.get("/new?like=a")).body.decode()
        text = unescape(re.findall(r"<textarea[^>]*>\s*([^<]*)</textarea>", page)[0])
        assert text == "name: a-copy-2\nkind: copy\nparams:\n  source: x\nschedule:\n  every_s: 60\n"
        assert (await visitor.get("/new?like=nobody")).status == 404


@on_loop
async def test_a_run_s_backup_proposes_a_task_that_restores_it() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        params = {"source": {"type": "folder", "path": "/srv/photos"}, "destination": "file:///to"}
        photos = Spec.model_validate(
            {"name": "photos", "kind": "backup", "params": params, "group": {"node": "node-1"}}
        )
        served.cluster.ok(PutTasks(served.cluster.now_us, (Put(photos.pack(), None),)))
        made = "20261121T030000.000000Z-42"
        run_id = await ended(served, "photos", {"url": f"file:///to/photos/{made}", "bytes": 1})
        page = unescape((await visitor.get(f"/runs/{run_id}")).body.decode())
        link = f"new?restore=photos&backup={made}&node=node-1"
        assert f'href="../{link}"' in page
        proposed = (await visitor.get(f"/{link}")).body.decode()
        text = unescape(re.findall(r"<textarea[^>]*>\s*([^<]*)</textarea>", proposed)[0])
        assert "url: file:///to/photos" in text
        assert f"backup: {made}" in text
        assert (await visitor.get("/new?restore=nobody")).status == 404


@on_loop
async def test_a_task_s_backups_are_those_that_its_last_good_run_found() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        params = {"source": {"type": "folder", "path": "/srv/photos"}, "destination": "file:///to"}
        given = {"name": "photos", "kind": "backup", "params": params, "group": {"node": "node-1"}}
        served.cluster.ok(PutTasks(served.cluster.now_us, (Put(Spec.model_validate(given).pack(), None),)))
        assert "No run has made a backup yet" in text_of(await visitor.get("/tasks/photos/backups"))
        made = {"node": "node-1", "bytes": 2_500_000, "stored_bytes": 1000, "remarks": 2}
        times = {"created": "2026-11-21T03:00:00+00:00", "finished": "2026-11-21T03:01:00+00:00"}
        proven = {"result": "proven", "at": "2026-11-22T03:00:00+00:00"}
        rows = [
            {"name": "20261121T030000.000000Z-42", "proof": proven, **made, **times},
            {"name": "20261120T030000.000000Z-41", "proof": None, **made, **times},
            {"name": "20261119T030000.000000Z-40", "proof": {**proven, "result": "failed"}, **made, **times},
        ]
        await ended(served, "photos", {"url": "file:///to/photos/x", "backups": rows, "degraded": "s3://b lacks 1: no"})
        await ended(served, "photos", None, "the disk is full")
        page = await visitor.get("/tasks/photos/backups")
        said = text_of(page)
        for words in ("2.38 MiB", "2 remarks", "not yet", "it did not restore", "s3://b lacks 1: no", "Points in time"):
            assert words in said, words
        assert "new?restore=photos&amp;backup=20261121T030000.000000Z-42&amp;node=node-1" in page.body.decode()
        assert 'href="../tasks/photos/backups"' in (await visitor.get("/tasks/photos")).body.decode()
        await served.put_task()
        assert (await visitor.get("/tasks/a/backups")).status == 404


@on_loop
async def test_whoever_edits_a_task_of_a_set_is_told_that_its_files_prevail() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task(set="site")
        await served.put_task("b")
        told = "This task is kept in the set site : the next rota apply of its files replaces what you change here"
        before = await visitor.get("/tasks/a/edit")
        assert told in text_of(before)
        assert "kept in the set" not in text_of(await visitor.get("/tasks/b/edit"))
        csrf = re.findall(r'name="csrf" value="(\w+)"', before.body.decode())[-1]
        typed = "name: a\nkind: copy\nparams: {source: z}\nset: site\n"
        checked = await visitor.send("/tasks/a/edit", {"csrf": csrf, "version": "1", "definition": typed})
        assert told in text_of(checked)


@on_loop
async def test_a_definition_is_shown_in_the_order_in_which_it_was_written() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        given = '{"kind": "copy", "params": {"times": 2, "source": "x"}, "labels": {"z": "1", "b": "2"}}'
        headers = {"Content-Type": "application/json"}
        assert (await served.ask("PUT", "/v1/tasks/a", data=given, headers=headers)).status == 201
        said = text_of(await visitor.part("/tasks/a?part=definition"))
        assert "params: times: 2 source: x labels: z: '1' b: '2'" in said


@on_loop
async def test_a_run_is_started_with_params_of_its_own_by_a_form_of_the_kinds_fields() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task(params={"source": "x", "also": ["b"]})
        page = await visitor.get("/tasks/a/run-with")
        body = page.body.decode()
        assert "1 param that is left out, with its default times Left empty: 1." in text_of(page)
        assert "left out" not in text_of(page).split("source")[0]
        names = [unescape(name) for name in re.findall(r'name="(param:[^"]+)"', body)]
        assert names == ['param:["source"]', 'param:["also"]', 'param:["times"]']
        hidden = dict(re.findall(r'name="(csrf|version)" value="(\w+)"', body))
        source, also, times = names
        typed = {**hidden, source: "y", also: "- b", times: "0"}
        refused = await visitor.send("/tasks/a/run-with", typed)
        assert (refused.status, "Input should be greater than or equal to 1" in text_of(refused)) == (422, True)
        assert 'value="y"' in refused.body.decode(), "what was typed stays"
        unread = await visitor.send("/tasks/a/run-with", {**typed, also: "- ["})
        assert (unread.status, "cannot be read as YAML" in text_of(unread)) == (422, True)
        assert (await visitor.send("/tasks/a/run-with", {**typed, "csrf": "f" * 64})).status == 403
        assert not served.cluster.machine.state.runs
        started = await visitor.send("/tasks/a/run-with", {**typed, times: "3"})
        [run_id] = served.cluster.machine.state.runs
        assert (started.status, started.headers["Location"]) == (303, f"../../runs/{run_id}")
        assert (await served.get(f"/v1/runs/{run_id}")).json["params"] == {"source": "y", "also": ["b"], "times": 3}
        said = text_of(await visitor.get(f"/runs/{run_id}"))
        assert "What it was given params in place of the task's source: y also: - b times: 3" in said
        busy = await visitor.send("/tasks/a/run-with", typed | {times: "4"})
        assert (busy.status, "nothing was started" in text_of(busy).lower()) == (409, True)
        served.cluster.ok(Finish(served.cluster.now_us, run_id, served.claim(run_id), "succeeded", {}))
        assert "by hand, own params" in text_of(await visitor.get("/tasks/a"))
        # Another run with the same params, and one with the task's.
        again = re.search(
            r'href="\.\./(tasks/a/run-with\?like=[^"]+)"', (await visitor.get(f"/runs/{run_id}")).body.decode()
        )
        assert again is not None
        like = (await visitor.get("/" + unescape(again[1]))).body.decode()
        assert 'value="y"' in like
        same = {**hidden, source: "x", also: "- b", times: ""}
        assert (await visitor.send("/tasks/a/run-with", same)).status == 303
        [run_id] = served.cluster.machine.state.runs
        assert served.cluster.machine.state.runs[run_id].params is None
        await served.put_task(params={"source": "z"})
        late = await visitor.send("/tasks/a/run-with", typed)
        assert (late.status, "Meanwhile somebody else has changed the task" in text_of(late)) == (409, True)
        assert (await visitor.get("/tasks/nobody/run-with")).status == 404


@on_loop
async def test_hostile_names_and_values_of_params_are_text() -> None:
    async with servers(("node-1", "node-2")) as served:
        visitor = Visitor(served)
        evil = '"><script>alert(1)</script>'
        await served.put_task(params={"source": evil, evil: {evil: [evil]}, "a b": "c", "__proto__": 1, "nul": "\x00"})
        page = await visitor.get("/tasks/a/run-with")
        assert b"<script>alert" not in page.body
        assert "alert(1)" in text_of(page)
        run_id = await served.start_run(json={"params": {"source": evil, evil: "\u202e"}})
        for path in (f"/runs/{run_id}", f"/tasks/a/run-with?like={run_id}", "/tasks/a"):
            shown = await visitor.get(path)
            assert (shown.status, b"<script>alert" in shown.body) == (200, False), path
        # A run of another task lends this one nothing; one that is not kept is said.
        await served.put_task("b", params={"source": "of b"})
        assert "of b" in (await visitor.get(f"/tasks/b/run-with?like={run_id}")).body.decode()
        assert (await visitor.get("/tasks/b/run-with?like=nobody")).status == 404
        # A kind that this node does not know is asked of another one, and is one field where none answers.
        served.node.kinds = InstalledKinds({})
        assert "times" in text_of(await visitor.get("/tasks/b/run-with"))
        await served.stop("node-2")
        alone = await visitor.get("/tasks/b/run-with")
        assert (alone.status, "All params of the run." in text_of(alone)) == (200, True)
        csrf = re.findall(r'name="csrf" value="(\w+)"', alone.body.decode())[-1]
        form = {"csrf": csrf, "version": "1", "param:[]": "source: typed"}
        unchecked = await visitor.send("/tasks/b/run-with", form)
        assert (unchecked.status, "nothing was started" in text_of(unchecked).lower()) == (503, True)
        assert "source: typed" in unchecked.body.decode(), "what was typed stays"


@on_loop
async def test_the_form_for_params_never_shows_what_a_secret_is() -> None:
    async with servers() as served:
        visitor = Visitor(served)
        await served.put_task(params={"source": "x", "key": {"secret": "s3_key"}})
        page = await visitor.get("/tasks/a/run-with")
        assert "secret: s3_key" in text_of(page)
        run_id = await served.start_run(json={"params": {"source": "y", "key": {"secret": "other_key"}}})
        assert "key: secret: other_key" in text_of(await visitor.get(f"/runs/{run_id}"))


@on_loop
async def test_a_task_that_runs_on_each_member_shows_how_it_fares_on_each() -> None:
    async with servers(("node-1", "node-2")) as served:
        visitor = Visitor(served)
        served.cluster.ok(TakeLead(served.cluster.now_us, "node-1", 1, RULES))
        assert (await served.ask("PUT", "/v1/tasks/a", json={"kind": "copy", "each": True, "pin": "x"})).status == 422
        await served.put_task("a", each=True)
        started = (await served.ask("POST", "/v1/tasks/a/runs", json={})).json
        first, second = started["run_ids"]
        assert (started["run_id"], started["busy"]) == (first, [])
        token = served.claim(first, "node-1")
        served.cluster.ok(Finish(served.cluster.now_us, first, token, "failed", error="no such folder", retry=False))
        view = (await served.get("/v1/tasks/a/owner")).json
        assert [(part["member"], part["failing"]) for part in view["members"]] == [("node-1", True), ("node-2", False)]
        assert "it runs on each member: node-1, node-2" in [told["detail"] for told in view["standing"]]
        assert (await served.get(f"/v1/runs/{second}")).json["member"] == "node-2"
        said = text_of(await visitor.get("/tasks/a"))
        for words in ("It runs on each member: node-1, node-2", "node-1 ■ failed", "no such folder"):
            assert words in said
        assert "waiting for node-2" in said
        again = (await served.ask("POST", "/v1/tasks/a/runs", json={})).json
        assert (len(again["run_ids"]), again["busy"]) == (1, ["node-2"])
        one = await served.ask("POST", "/v1/tasks/a/runs", json={"member": "node-2"})
        assert (one.status, "is active on node-2" in one.json["detail"]) == (409, True)
        assert (await served.ask("POST", "/v1/tasks/a/actions/preview", json={})).status == 422
        served.cluster.ok(Finish(served.cluster.now_us, second, served.claim(second, "node-2"), "succeeded", {}))
        form = (await visitor.get(f"/tasks/a/run-with?like={second}")).body.decode()
        typed = dict(re.findall(r'name="(csrf|version|like)" value="([^"]+)"', form)) | {'param:["source"]': "x"}
        assert (await visitor.send("/tasks/a/run-with", typed)).status == 303
        assert served.cluster.machine.state.runs_of["a"][1:] == (
            next(one for one in served.cluster.machine.state.runs if one.endswith("@node-2")),
        )
        await served.put_task("b")
        assert (await served.ask("POST", "/v1/tasks/b/runs", json={"member": "node-2"})).status == 422
