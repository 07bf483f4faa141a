"""The page's buttons: each calls the handler of the API, and answers with a notice or a redirect back to the page."""

from aiohttp import web

from node.http.api import backfills, members, run_starts, runs, tasks
from node.http.door.endpoint import Handler
from node.http.door.request_context import RequestContext
from node.web.definition_form import version_sent
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import is_part, local_target, page, redirect

endpoints = PageEndpoints("page")


@endpoints.form("/tasks/{name}/run")
async def run_task(context: RequestContext) -> web.Response:
    """Start a run of a task by hand."""
    name = await tasks.task_to_change(context)
    started = await run_starts.propose_run(context, name)
    return await _done(context, f"{name} was started", f"as {', '.join(started.get('run_ids', [started['run_id']]))}.")


@endpoints.form("/tasks/{name}/pause")
async def pause_task(context: RequestContext) -> web.Response:
    """Pause a task."""
    return await _obeyed(context, tasks.pause, f"{context.path('name')} is paused", "It has no due times.")


@endpoints.form("/tasks/{name}/resume")
async def resume_task(context: RequestContext) -> web.Response:
    """Resume a paused task."""
    return await _obeyed(context, tasks.resume, f"{context.path('name')} is resumed", "Its schedule starts from now.")


@endpoints.form("/tasks/{name}/delete")
async def delete_shown_task(context: RequestContext) -> web.Response:
    """Delete a task, if it still has the version that was shown, and cancel its runs."""
    name = await tasks.task_to_change(context)
    await tasks.delete(context, name, version_sent(await context.form()))
    return redirect(context, "tasks")


@endpoints.form("/runs/{run_id}/cancel")
async def cancel_shown_run(context: RequestContext) -> web.Response:
    """Cancel a run."""
    return await _obeyed(context, runs.cancel_run, f"{context.path('run_id')} is being cancelled", "")


@endpoints.form("/backfills/{number}/pause")
async def pause_shown_backfill(context: RequestContext) -> web.Response:
    """Pause a backfill."""
    title = f"Backfill {context.path('number')} is paused"
    return await _obeyed(context, backfills.pause_backfill, title, "What is under way goes on.")


@endpoints.form("/backfills/{number}/resume")
async def resume_shown_backfill(context: RequestContext) -> web.Response:
    """Resume a paused backfill."""
    return await _obeyed(context, backfills.resume_backfill, f"Backfill {context.path('number')} goes on", "")


@endpoints.form("/backfills/{number}/cancel")
async def cancel_shown_backfill(context: RequestContext) -> web.Response:
    """Cancel a backfill and its active runs."""
    title = f"Backfill {context.path('number')} is cancelled"
    return await _obeyed(context, backfills.cancel_backfill, title, "Its runs are cancelled, too.")


@endpoints.form("/members/{id}/drain")
async def drain_member(context: RequestContext) -> web.Response:
    """Give a member no new runs."""
    return await _obeyed(context, members.drain, f"{context.path('id')} gets no new runs", "Its runs finish there.")


@endpoints.form("/members/{id}/undrain")
async def undrain_member(context: RequestContext) -> web.Response:
    """Give a drained member new runs again."""
    return await _obeyed(context, members.undrain, f"{context.path('id')} gets new runs again", "")


async def _obeyed(context: RequestContext, route: Handler, title: str, detail: str) -> web.Response:
    await route(context)
    return await _done(context, title, detail)


async def _done(context: RequestContext, title: str, detail: str) -> web.Response:
    if is_part(context):
        return page(context, "notice.html", title=title, detail=detail, bad=False)
    return redirect(context, local_target((await context.form()).get("back", "/")))
