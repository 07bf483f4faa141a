"""A server's log under pgbench at full speed, while the node that archives it is killed or frozen again and again.

    python -m bench.wal [--kills 50] [--minutes 10] [--moments 30] [--rate 0] [--seed 1]

Three real nodes, one of which runs the task of kind `wal`. Each fault is drawn: the node gets SIGKILL, or it and its
workers get SIGSTOP until another member has claimed the archive, and SIGCONT some seconds later. After the last fault
all nodes are killed while pgbench still writes. Then, from what is stored and nothing else:

- each archived segment and piece is compared, byte by byte, with the server's own (its archive_command keeps a copy);
- the pages are read for the writers that count;
- the server is restored to drawn moments, by time and by LSN, and to the latest one. Each time the transactions that a
  table has are compared with the commit records of the server's own log (pg_waldump): none may be missing, none more.

`--rate`: pgbench's transactions a second; 0: as many as it can. With `--kills 0` and a rate it measures the lag.
"""

import bisect
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.beginning import options_of
from examples.demo.postgres import USER, Server, postgres_server, run_as_server
from node.cli.local import wait_for
from tasks.backup.archive import Content, quiet, stored_content
from tasks.backup.kind import Backup
from tasks.backup.manifest import Manifest, survey_url
from tasks.backup.params import BackupParams
from tasks.places.place import Place
from tasks.postgres.wal_position import WalPosition, lsn_text, parse_lsn, segment_name, segment_start
from tasks.wal.archive import archived_systems, chapter_segments, page_name, read_archive
from tasks.wal.pages import Counted, StoredWal, WalPage
from tasks.wal.restore import Moment, restore_server
from testkit.cluster import Cluster
from testkit.fake_context import FakeContext
from testkit.servers.postgres_servers import recovered

WAIT_S: Final = 240.0
LOOK_S: Final = 0.2
BASE_S: Final = 100.0
"""How often a physical backup is made: a restore begins at the one before its moment."""

PASSWORD: Final = "hush-hush"
SCALE: Final = 10
LOAD: Final = """\\set aid random(1, 100000 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
INSERT INTO ledger (at, lsn, delta) VALUES (clock_timestamp(), pg_current_wal_insert_lsn(), :delta);
END;
"""
LEDGER: Final = (
    "CREATE TABLE ledger (id bigserial PRIMARY KEY, at timestamptz, lsn pg_lsn, delta int, "
    "xid text DEFAULT pg_current_xact_id()::text)"
)
FOUND: Final = "SELECT coalesce(string_agg(xid, ' '), '') FROM ledger"
SUMS: Final = "SELECT (SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts) = coalesce(sum(delta), 0) FROM ledger"
_NICE: Final = 10
_COMMIT_BYTES: Final = 128
_COMMIT: Final = re.compile(r"tx:\s+(\d+), lsn: ([0-9A-F]+/[0-9A-F]+), .*desc: (COMMIT|ABORT) (\S+ \S+) UTC")


@dataclass(frozen=True)
class Ended:
    """A transaction's end, as the server's own log has it."""

    lsn: int
    xid: str
    committed: bool
    at: datetime


@dataclass
class Watch:
    """What is seen of the archive and the server while they work, every `LOOK_S`."""

    server: Server
    url: str
    pages: list[tuple[WalPage, bool, float]] = field(default_factory=list)
    #: (monotonic, the server's position, the bytes it keeps for the slot), each look.
    looks: list[tuple[float, int, int]] = field(default_factory=list)
    #: (monotonic, the archive's position), whenever it moved.
    archived: list[tuple[float, int]] = field(default_factory=list)
    counted: Counted = field(default_factory=Counted)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Look until `ended` is set."""
        slot = "SELECT pg_current_wal_flush_lsn(), pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots"
        while not self.ended.wait(LOOK_S):
            with suppress(Exception):  # the server may be stopping
                said = self.server.sql("postgres", slot)
                if said:
                    lsn, kept = said.splitlines()[0].split("|")
                    self.looks.append((time.monotonic(), parse_lsn(lsn), int(kept or 0)))
            self._read()

    def _read(self) -> None:
        systems = archived_systems(Place(self.url))
        if not systems:
            return
        place = Place(f"{self.url}/{systems[0]}")
        while (content := place.read(page_name(self.counted.number + 1))) is not None:
            page = WalPage.model_validate_json(content)
            self.pages.append((page, self.counted.take(page), time.monotonic()))
        position = self.counted.position
        if position is not None and (not self.archived or self.archived[-1][1] != position.lsn):
            self.archived.append((time.monotonic(), position.lsn))

    def lags_s(self) -> list[float]:
        """How long after each look the position that the server had then was archived."""
        lags = []
        for at_s, lsn, _ in self.looks:
            number = bisect.bisect_left([position for _, position in self.archived], lsn)
            if number < len(self.archived):
                lags.append(max(0.0, self.archived[number][0] - at_s))
        return sorted(lags)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print. Raises `AssertionError` if the archive is not what it must be."""
    parser = options_of(__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--moments", type=int, default=30)
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    draw = random.Random(options.seed)
    folder = Path(tempfile.mkdtemp(prefix="rota-wal-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        with _loaded_server(folder) as server:
            watch = _archive(server, folder, options, draw)
            _check(server, folder, watch, options.moments, draw)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _loaded_server(folder: Path) -> Iterator[Server]:
    """A server whose archive_command keeps a copy of its log in `folder`, with pgbench's tables and the ledger."""
    copy = folder / "copy"
    copy.mkdir()
    copy.chmod(0o777)
    with postgres_server(PASSWORD) as server:
        for line in (
            "max_slot_wal_keep_size = '4GB'",
            "archive_mode = on",
            f"archive_command = 'cp %p {copy}/%f.new && mv {copy}/%f.new {copy}/%f'",
            "max_wal_size = '512MB'",
            "timezone = 'UTC'",
            "log_timezone = 'UTC'",
        ):
            server.sql("postgres", f"ALTER SYSTEM SET {line}")
        control = [str(server.programs / "pg_ctl"), "-D", f"{server.folder}/data", "-w", "-t", "60", "-m", "fast"]
        run_as_server([*control, "-l", str(server.folder / "server.log"), "restart"], server.folder)
        # Attempts have the niceness 10. The server would be on another machine; here it must not starve them.
        postmaster = int((server.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        os.setpriority(os.PRIO_PROCESS, postmaster, _NICE)
        server.sql("postgres", LEDGER)
        subprocess.run(
            [*_pgbench(server), "-i", "-q", "-s", str(SCALE)], env=_environ(), check=True, capture_output=True
        )
        yield server


def _pgbench(server: Server) -> list[str]:
    return [str(server.programs / "pgbench"), "-h", str(server.folder), "-U", USER, "postgres"]


def _environ() -> dict[str, str]:
    return {"PGPASSWORD": PASSWORD, "PATH": "", "TZ": "UTC"}


def _archive(server: Server, folder: Path, options: Any, draw: random.Random) -> Watch:
    """Have a cluster archive the log under load and faults. Returns what was seen."""
    script, to = folder / "load.sql", folder / "to"
    script.write_text(LOAD)
    load = [
        str(shutil.which("nice")),
        "-n",
        str(_NICE),
        *_pgbench(server),
        "-n",
        "-f",
        str(script),
        "-T",
        "86400",
        "-c",
        "4",
        "-D",
        f"scale={SCALE}",
    ]
    load += ["-R", str(options.rate)] if options.rate else []
    watch = Watch(server, f"{to}/log")
    with Cluster(folder / "cluster") as cluster:
        cluster.start()
        cluster.wait_until_whole(120)
        (cluster.secrets_dir / "pg").write_text(PASSWORD)
        named = {"url": server.url("postgres"), "password": {"secret": "pg"}}
        params = {"servers": [named], "destination": str(to)}
        cluster.register("log", "wal", schedule={"continuous": True}, params=params)
        looking = threading.Thread(target=watch.run)
        looking.start()
        now = parse_lsn(server.sql("postgres", "SELECT pg_current_wal_flush_lsn()"))
        wait_for("the log so far", lambda: watch.archived and watch.archived[-1][1] >= now, WAIT_S)
        watch.looks.clear()
        _back_up(server, folder, 1)
        began_s = time.monotonic()
        writing = subprocess.Popen(load, env=_environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            takeovers = _harm(server, folder, cluster, watch, options, draw)
            rest_s = began_s + options.minutes * 60 - time.monotonic()
            if rest_s > 0:
                time.sleep(rest_s)
            for name in cluster.running():
                cluster.kill(name)
            worked_s = time.monotonic() - began_s
        finally:
            writing.send_signal(signal.SIGINT)
            writing.wait()
            watch.ended.set()
            looking.join()
    watch._read()
    _print_work(watch, takeovers, worked_s)
    return watch


def _back_up(server: Server, folder: Path, number: int) -> None:
    params = {
        "source": {"type": "postgres_physical", "url": server.url("postgres"), "password": {"secret": "pg"}},
        "destination": f"{folder}/to",
    }
    params["source"]["wal"] = "archived"  # type: ignore[index]
    scratch = folder / f"scratch-{number}"
    scratch.mkdir()
    made = BackupParams.model_validate(params)
    Backup().run(FakeContext(made, scratch, task="base", token=number, secrets={"pg": PASSWORD}))


def _harm(
    server: Server, folder: Path, cluster: Cluster, watch: Watch, options: Any, draw: random.Random
) -> dict[str, list[float]]:
    """Kill or freeze the owner as often as asked. Returns how long it took until another had claimed the archive."""
    took: dict[str, list[float]] = {"killed": [], "frozen": []}
    based_s, bases = time.monotonic(), 1
    for number in range(options.kills):
        time.sleep(draw.uniform(0, 4))
        owner = _owner(cluster)
        how = draw.choice(["killed", "frozen"])
        before, began_s = watch.counted.holder, time.monotonic()
        frozen = _freeze(cluster, owner) if how == "frozen" else []
        if how == "killed":
            cluster.kill(owner)
        wait_for("another claim of the archive", lambda: watch.counted.holder > before, WAIT_S)  # noqa: B023
        took[how].append(time.monotonic() - began_s)
        number_of_pages = watch.counted.number
        wait_for("more log", lambda: watch.counted.number > number_of_pages + 1, WAIT_S)  # noqa: B023
        if how == "frozen":
            time.sleep(draw.uniform(0, 3))
            cluster.resume(owner)
            for pid in frozen:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        else:
            cluster.start(owner)
        cluster.wait_until_whole(WAIT_S)
        print(f"{number + 1}: {owner} {how}, taken over after {took[how][-1]:.1f} s", flush=True)
        if time.monotonic() - based_s > BASE_S:
            based_s, bases = time.monotonic(), bases + 1
            _back_up(server, folder, bases)
    return took


def _owner(cluster: Cluster) -> str:
    def held() -> Any:
        found = [run for run in cluster.get("/v1/runs", task="log")["items"] if run["state"] == "running"]
        return found[0]["node"] if found else None

    return str(wait_for("the run of log", held, WAIT_S))


def _freeze(cluster: Cluster, name: str) -> list[int]:
    """Stop a node, and then all processes of its attempts. Returns these."""
    cluster.pause(name)
    pids = cluster.workers(name)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    return pids


def _print_work(watch: Watch, takeovers: dict[str, list[float]], worked_s: float) -> None:
    written = watch.looks[-1][1] - watch.looks[0][1]
    rate = written / (watch.looks[-1][0] - watch.looks[0][0])
    print(f"worked {worked_s:.0f} s; the server wrote {written / 2**20:.0f} MiB, {rate / 2**20:.2f} MiB a second")
    for how, times in takeovers.items():
        if times:
            middle = statistics.median(times)
            print(f"{how} {len(times)} times: claimed by another after {middle:.1f} s, at most {max(times):.1f} s")
    kept = sorted(kept for _, _, kept in watch.looks)
    print(f"the server kept for the slot: median {kept[len(kept) // 2] / 2**20:.0f} MiB, most {kept[-1] / 2**20:.0f}")
    longest_s = max([0.0, *(each for times in takeovers.values() for each in times)])
    print(f"  the longest takeover took {longest_s:.1f} s, in which {longest_s * rate / 2**20:.0f} MiB are written")
    lags = watch.lags_s()
    if lags:
        shown = ", ".join(f"p{part} {lags[int(len(lags) * part / 100)]:.1f}" for part in (50, 90, 99))
        print(f"lag of the archive, faults included, in seconds: {shown}, most {lags[-1]:.1f}", flush=True)


def _check(server: Server, folder: Path, watch: Watch, moments: int, draw: random.Random) -> None:
    """Compare what is stored with the server's own log, and restore to moments. Raises `AssertionError`."""
    copy = folder / "copy"
    server.sql("postgres", "SELECT pg_switch_wal()")
    last = server.sql("postgres", "SELECT pg_walfile_name(pg_current_wal_lsn() - 16777216)")
    wait_for(f"the server's copy of {last}", (copy / last).exists, WAIT_S)
    url = f"{folder}/to/log"
    place = Place(f"{url}/{archived_systems(Place(url))[0]}")
    counted = read_archive(place)
    _check_pages(watch, counted)
    _check_bytes(place, counted, copy)
    position = counted.position
    assert position is not None
    ledger = set(server.sql("postgres", FOUND).split())
    ended = [each for each in _ends(server, copy) if each.xid in ledger or not each.committed]
    subprocess.run(["chmod", "-R", "a+rX", str(folder / "to")], check=True)
    found = survey_url(f"{folder}/to/base").complete
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
        with recovered(server, partial(_restore, found, moment, url), WAIT_S * 4) as again:
            took.append(time.monotonic() - began_s)
            _compare(again, moment, ended, position)
        print(f"restored to {moment}: equal, in {took[-1]:.1f} s", flush=True)
    print(f"{len(targets)} restores equal to the server's log, in {statistics.median(took):.1f} s each (median)")


def _restore(found: Sequence[Manifest], moment: Moment, url: str, target: Path) -> None:
    restore_server(found, target, moment, url)


def _check_pages(watch: Watch, counted: Counted) -> None:
    claims = [page.token for page, _, _ in watch.pages if page.claim]
    assert [page.number for page, _, _ in watch.pages] == list(range(1, len(watch.pages) + 1)), "a page is missing"
    assert claims == sorted(claims), "a claim of an earlier attempt came later"
    for page, counts, _ in watch.pages:
        assert counts or page.token < max(claims), "a page of the holder does not count"
    writers = Counter(page.token for page, counts, _ in watch.pages if counts)
    ignored = sum(not counts for _, counts, _ in watch.pages)
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
    done = subprocess.run(argv, env=_environ(), cwd=copy, capture_output=True, text=True, check=False)
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


if __name__ == "__main__":
    main()
