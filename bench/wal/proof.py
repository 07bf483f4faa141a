"""Compares what is stored with the server's own log, and restores it to moments."""

import random
import re
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from bench.wal.faults import WAIT_S
from bench.wal.site import Site, programs_environ
from bench.wal.watch import Watch
from examples.demo.postgres import Server
from node.cli.local import wait_for
from tasks.backup.archive import Content, quiet, stored_content
from tasks.backup.manifest import Manifest, survey_url
from tasks.places.place import Place
from tasks.postgres.wal_position import WalPosition, lsn_text, parse_lsn, segment_name, segment_start
from tasks.wal.archive import archived_systems, chapter_segments, read_archive
from tasks.wal.counted import Counted
from tasks.wal.pages import StoredWal
from tasks.wal.restore import Moment, restore_server
from testkit.servers.postgres_servers import recovered

FOUND: Final = "SELECT coalesce(string_agg(xid, ' '), '') FROM ledger"
SUMS: Final = "SELECT (SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts) = coalesce(sum(delta), 0) FROM ledger"
_COMMIT_BYTES: Final = 128
_COMMIT: Final = re.compile(r"tx:\s+(\d+), lsn: ([0-9A-F]+/[0-9A-F]+), .*desc: (COMMIT|ABORT) (\S+ \S+) UTC")


@dataclass(frozen=True)
class Ended:
    """A transaction's end, as the server's own log has it."""

    lsn: int
    xid: str
    committed: bool
    at: datetime


def prove(site: Site, watch: Watch, moments: int, draw: random.Random) -> None:
    """Compare what is stored with the server's own log, and restore to moments. Raises `AssertionError`."""
    server, copy = site.server, site.copy
    server.sql("postgres", "SELECT pg_switch_wal()")
    last = server.sql("postgres", "SELECT pg_walfile_name(pg_current_wal_lsn() - 16777216)")
    wait_for(f"the server's copy of {last}", (copy / last).exists, WAIT_S)
    place = site.log_place(archived_systems(site.log_place())[0])
    counted = read_archive(place)
    _check_pages(watch, counted)
    _check_bytes(place, counted, copy)
    position = counted.position
    assert position is not None
    ledger = set(server.sql("postgres", FOUND).split())
    ended = [each for each in _ends(server, copy) if each.xid in ledger or not each.committed]
    subprocess.run(["chmod", "-R", "a+rX", str(site.folder / "to")], check=True)
    found = survey_url(site.base_url).complete
    print(f"{len(found)} physical backups; {len(ended)} transactions in the server's log", flush=True)
    earliest = min(backup.finished for backup in found)
    commits = [each for each in ended if each.committed]
    first = next(n for n, each in enumerate(commits) if each.at > earliest + timedelta(seconds=1))
    usable = [each for each in commits[first:] if each.lsn < position.lsn - 200]
    targets: list[Moment] = [Moment()]
    for number in range(moments):
        drawn = draw.choice(usable[:-1])
        targets.append(Moment(lsn=drawn.lsn) if number % 2 else Moment(time=drawn.at))
    took = []
    for moment in targets:
        began_s = time.monotonic()
        with recovered(server, partial(_restore, site, found, moment), WAIT_S * 4) as again:
            took.append(time.monotonic() - began_s)
            _compare(again, moment, ended, position)
        print(f"restored to {moment}: equal, in {took[-1]:.1f} s", flush=True)
    print(f"{len(targets)} restores equal to the server's log, in {statistics.median(took):.1f} s each (median)")


def _restore(site: Site, found: Sequence[Manifest], moment: Moment, target: Path) -> None:
    restore_server(found, target, moment, site.log_url, wal_options=site.options)


def _check_pages(watch: Watch, counted: Counted) -> None:
    claims = [page.token for page, _ in watch.pages if page.claim]
    assert [page.number for page, _ in watch.pages] == list(range(1, len(watch.pages) + 1)), "a page is missing"
    assert claims == sorted(claims), "a claim of an earlier attempt came later"
    for page, counts in watch.pages:
        assert counts or page.token < max(claims), "a page of the holder does not count"
    writers = Counter(page.token for page, counts in watch.pages if counts)
    ignored = sum(not counts for _, counts in watch.pages)
    assert not counted.gaps, counted.gaps
    print(f"{len(watch.pages)} pages of {len(writers)} writers, {ignored} of earlier ones that do not count; no gap")


def _check_bytes(place: Place, counted: Counted, copy: Path) -> None:
    """Compare each stored range with the server's copy of its log."""
    size = counted.segment_bytes
    whole = [*counted.segments.values()]
    for chapter in counted.chapters:
        whole += chapter_segments(place, chapter).values()
    pieces = [piece for each in counted.pieces.values() for piece in each]
    first = min(one.start for one in whole)
    assert counted.position is not None
    assert list(counted.missing(1, first, counted.position.lsn)) == [], "the archive has a hole"
    for stored in [*whole, *pieces]:
        _compare_bytes(place, stored, copy / segment_name(stored.timeline, stored.start, size), size)
    print(
        f"{len(whole)} segments and {len(pieces)} pieces equal to the server's own, byte by byte: "
        f"{lsn_text(first)} to {lsn_text(counted.position.lsn)} without a hole",
        flush=True,
    )


def _compare_bytes(place: Place, stored: StoredWal, own: Path, size: int) -> None:
    content = Content(stored_content(place, stored.file, quiet)).read()
    begins = stored.start - segment_start(stored.start, size)
    with own.open("rb") as file:
        file.seek(begins)
        assert file.read(stored.end - stored.start) == content, f"{stored.file.name} differs from {own}"


def _ends(server: Server, copy: Path) -> list[Ended]:
    """Return the ends of all transactions, in the order of the server's own log."""
    names = sorted(path.name for path in copy.iterdir() if re.fullmatch(r"[0-9A-F]{24}", path.name))
    argv = [str(server.programs / "pg_waldump"), "--rmgr=Transaction", names[0], names[-1]]
    done = subprocess.run(argv, env=programs_environ(), cwd=copy, capture_output=True, text=True, check=False)
    found = []
    for line in done.stdout.splitlines():
        if (match := _COMMIT.search(line)) is not None:
            at = datetime.fromisoformat(match[4]).replace(tzinfo=UTC)
            found.append(Ended(parse_lsn(match[2]), match[1], match[3] == "COMMIT", at))
    assert found, done.stderr
    return found


def _compare(again: Server, moment: Moment, ended: Sequence[Ended], position: WalPosition) -> None:
    """Compare the ledger of a restored server with the commits that it must have, by the rules of recovery targets."""
    has = set(again.sql("postgres", FOUND).split())
    until = position.lsn
    if moment.lsn is not None:
        until = moment.lsn + 1
    elif moment.time is not None:
        until = next((each.lsn for each in ended if each.at > moment.time), until)
    possible = {each.xid for each in ended if each.committed and each.lsn < until}
    # At the end of what is stored, the last record may be cut.
    certain = possible if until < position.lsn else {each.xid for each in ended if each.lsn + _COMMIT_BYTES <= until}
    assert has <= possible, f"{len(has - possible)} transactions too many, such as {sorted(has - possible)[:3]}"
    assert certain & possible <= has, f"{len(certain - has)} are missing, such as {sorted(certain - has)[:3]}"
    assert again.sql("postgres", SUMS) == "t", "the sums of accounts and ledger differ"
