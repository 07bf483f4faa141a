"""What would be without members, as the API shows it. Pure."""

from itertools import islice

from node.duty.forecast import STEPS, Forecast, MemberForecast
from node.duty.what_if import WhatIf
from node.http.responses.placement import AheadView, MemberAheadView, PlannedView, WhatIfView
from node.state.times import rfc3339


def what_if_view(found: WhatIf, limit: int) -> WhatIfView:
    """The answer; each list has `limit` items at most."""
    majority = found.majority
    return {
        "without": sorted(found.supposition.without),
        "back": sorted(found.supposition.back),
        "index": found.index,
        "epoch": found.epoch,
        "majority": {
            "members": majority.members,
            "needed": majority.needed,
            "now": majority.now,
            "then": majority.then,
            "left": majority.left,
        },
        "moves": {
            "count": len(found.moves),
            "items": [{"task": one.task, "from": one.source, "to": one.target} for one in found.moves[:limit]],
        },
        "unowned": {
            "count": found.unowned_count,
            "items": [
                {"task": one.task, "code": one.code, "detail": one.detail, "now": one.now}
                for one in found.unowned[:limit]
            ],
        },
        "interrupted": {
            "count": len(found.interrupted),
            "items": [
                {"run_id": one.run_id, "task": one.task, "from": one.source, "to": one.target}
                for one in found.interrupted[:limit]
            ],
        },
        "load": {node: {"now": now, "then": found.load_then.get(node, 0)} for node, now in found.load_now.items()},
        "ahead": _ahead_view(found.ahead, limit),
    }


def _ahead_view(ahead: Forecast, limit: int) -> AheadView:
    runs = sorted(run for one in ahead.members.values() for run in one.runs)
    items: list[PlannedView] = [
        {
            "at": rfc3339(run.at_us),
            "task": run.task,
            "node": run.owner,
            "from": run.source,
            "took_s": None if run.took_us is None else run.took_us / 1e6,
        }
        for run in islice(runs, limit)
    ]
    nobody = ahead.members.get(None)
    return {
        "begins": rfc3339(ahead.span.from_us),
        "ends": rfc3339(ahead.span.until_us),
        "step_s": (ahead.span.until_us - ahead.span.from_us) / STEPS / 1e6,
        "members": {member: _member_view(one) for member, one in ahead.members.items() if member is not None},
        "unowned": None if nobody is None else _member_view(nobody),
        "items": items,
        "unlisted": ahead.count - len(items),
        "cut": ahead.cut,
    }


def _member_view(one: MemberForecast) -> MemberAheadView:
    return {"count": one.count, "starts": list(one.starts), "moved": list(one.moved_starts)}
