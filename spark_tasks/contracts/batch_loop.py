"""The loop of `etl` and `ingest`: claim, plan, commit; if overtaken, read the last batch and claim again.

Another attempt may work on the same task: an attempt of the same run that was declared lost but still runs, or an
attempt of another run. Only the holder may commit. The sink or the table records which attempt is the holder and which
batch is the last. An attempt that is overtaken only loses the time that it spent.
"""

from collections.abc import Callable
from typing import TypeVar

Batch = TypeVar("Batch")


def commit_batches(
    first: Batch | None,
    commit: Callable[[Batch], None],
    following: Callable[[], Batch | None],
    overtaken: type[Exception],
    read_again: Callable[[Exception], None],
) -> None:
    """Commit `first`, and then each batch that `following` plans, until it returns None.

    `commit` raises `overtaken` if another attempt has committed the batch or holds the sink now. Then `read_again`
    reads which batch was the last and claims the sink, and `following` plans again. All other errors of these functions
    are raised to the caller.
    """
    batch = first
    while batch is not None:
        try:
            commit(batch)
        except overtaken as error:
            read_again(error)
        batch = following()


def become_holder(
    token: int,
    holder: Callable[[], int | None],
    check_current: Callable[[int | None], None],
    claim: Callable[[int, int | None], bool],
) -> None:
    """Make the attempt with `token` the holder, unless it is the holder already.

    `check_current` receives the present holder's token. It makes sure, by a checkpoint, that this attempt's own token
    is current, and raises `Fenced` if it is not. If the holder's token is still greater, it is from an abandoned
    cluster, because a new cluster counts from 1 again. `claim` returns False if the holder has changed meanwhile.
    """
    while (held := holder()) != token:
        check_current(held)
        if claim(token, held):
            return
