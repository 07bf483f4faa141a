"""Real nodes at work while they are killed, stopped, cut off, filled up and put out of time; and what must hold.

    python -m bench.chaos [--minutes 30 | --rounds N] [--seed N] [--nodes 5] [--only FAULT] [--loopback] [--keep]

Each round deals one fault or two from a shuffled deck, holds them, mends them, and waits until the cluster is whole
again; every few rounds the cluster is left in peace for a while. Meanwhile tasks of every overlap and catch-up policy
run on schedules, long runs save checkpoints, and clients register, change, delete and start tasks. At the end, and
from outside (docs/explanation/promises.md): no two attempts of a run worked at once, every occurrence is there once,
was begun when it was due or passed over with reason, and ended as its task's do; tokens only grew, what was
acknowledged is there, all members tell the same, no log line is unexplained, and no process is left. Being late is
excused only while the observer saw that nobody could have been in time; what was judged is counted, and to have judged
nothing is a violation too. The exit code is 1 if anything was violated. The seed repeats the faults, not their
interleaving with everything else.

Nodes have network namespaces of their own, which wants root; with --loopback they share this machine's network, and
what is done to the network, the disk and the clocks is left out.
"""

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.chaos.cluster import HarmedCluster
from bench.chaos.deck import CARDS, Deck
from bench.chaos.report import report
from bench.chaos.trial import Trial
from bench.chaos.work import install
from node.cli.local import NotInTime
from node.client import ApiProblem, Unreachable
from testkit.faults import namespaces, node_clocks, small_disk
from testkit.faults.namespaces import Spaces
from testkit.faults.node_clocks import Clocks


def main(arguments: list[str] | None = None) -> int:
    """Run it; the exit code."""
    options = _options(arguments)
    # Namespaces, a mount and the nodes are to be taken down, however this ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("chaos: ended by SIGTERM"))
    if not options.loopback and (why := namespaces.why_not()) is not None:
        print(
            f"chaos: {why}. It wants root, ip and iptables; `make soak` does without (no faults of the network)",
            file=sys.stderr,
        )
        return 2
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    has, left_out = _has(options)
    deck = Deck(seed, has, options.only)
    length = f"{options.rounds} rounds" if options.rounds else f"{options.minutes:g} minutes"
    folder = Path(tempfile.mkdtemp(prefix="rota-chaos-"))
    print(f"chaos: {length} with {options.nodes} nodes, {len(deck.cards)} kinds of faults, --seed {seed}, in {folder}")
    for line in left_out:
        print(f"left out: {line}", flush=True)
    trial = _trial(options, folder, deck, seed, has)
    try:
        trial.begin()
        if _rounds(trial, options):
            trial.end()
    except (NotInTime, ApiProblem, Unreachable) as error:
        trial.found.append(f"{type(error).__name__}: {error}")
    finally:
        trial.close()
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    out = options.out / f"{stamp}-seed-{seed}"
    title = f"Chaos: {length}, {options.nodes} nodes, seed {seed}"
    print(report(trial, out, title, left_out))
    print(f"again: python -m bench.chaos {_replay(options, seed)}")
    print(f"the table, the picture and the faults are in {out}")
    if trial.found or options.keep:
        print(f"what the nodes said and kept is in {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return 1 if trial.found else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=0, help="so many rounds, however long they take")
    parser.add_argument("--seed", type=int, default=None, help="draws the faults; printed")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--only", action="append", default=[], help="this fault only; again for another")
    parser.add_argument("--loopback", action="store_true", help="no namespaces: needs no root")
    parser.add_argument("--keep", action="store_true", help="keep the nodes' folder, also if all was well")
    parser.add_argument("--out", type=Path, default=Path(".chaos"), help="where the results go")
    options = parser.parse_args(arguments)
    known = sorted(card.draw.__name__ for card in CARDS)
    if unknown := set(options.only) - set(known):
        parser.error(f"there is no fault called {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    return options


def _has(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """What the cluster has to be harmed by, and what is left out and why."""
    if options.loopback:
        return [], ["faults of the network, the disk and the clocks (--loopback)"]
    has, left_out = ["spaces"], []
    if (why := small_disk.why_not()) is None:
        has.append("small disk")
    else:
        left_out.append(f"a disk that is full, or hangs: {why}")
    if (why := node_clocks.why_not()) is None:
        has.append("clocks")
    else:
        left_out.append(f"clocks moved by an hour: {why}")
    return has, left_out


def _trial(options: argparse.Namespace, folder: Path, deck: Deck, seed: int, has: list[str]) -> Trial:
    names = [f"node-{number}" for number in range(1, options.nodes + 1)]
    cluster = HarmedCluster(
        folder,
        options.nodes,
        {"PYTHONPATH": install(folder / "kinds")},
        Spaces(names) if "spaces" in has else None,
        Clocks(folder / "clocks") if "clocks" in has else None,
        small_disk="small disk" in has,
    )
    return Trial(cluster, deck, seed)


def _rounds(trial: Trial, options: argparse.Namespace) -> bool:
    """Round after round, until it is enough. False if the cluster did not become whole again."""
    end, number = time.monotonic() + 60 * options.minutes, 0
    while (number < options.rounds) if options.rounds else (time.monotonic() < end):
        number += 1
        if not trial.round(number):
            return False
    return True


def _replay(options: argparse.Namespace, seed: int) -> str:
    words = [f"--rounds {options.rounds}" if options.rounds else f"--minutes {options.minutes:g}", f"--seed {seed}"]
    words.append(f"--nodes {options.nodes}")
    words += [f"--only {one}" for one in options.only]
    return " ".join([*words, *(["--loopback"] if options.loopback else [])])


if __name__ == "__main__":
    sys.exit(main())
