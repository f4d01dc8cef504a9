"""Kill studies at work, at random moments and in every way of ``tests/storm``, and check what is left.

Each kill has a study of its own, with real trials that are hard to end. After it, no process and no mount may
be left within five seconds, the user's files must be as they were, the study must be readable, it must go on where it
was cut, and then no folder may be left.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

from bench.report import command_line, table, write

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from harmless.harness import Mode, Trial
from storm.storm import GONE_SECONDS, Kill, kill_in_own_folder, plan
from storm.ways import WAYS

FENCE_SHARE = 0.25


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.storm", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument("--kills", type=int, default=200, help="how many; a quarter of them in a fence")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="how many studies at a time")
    arguments = parser.parse_args()
    fenced = round(arguments.kills * FENCE_SHARE)
    kills: dict[Mode, int] = {"namespaces": arguments.kills - fenced, "fence": fenced}
    with tempfile.TemporaryDirectory(prefix="st-") as folder:
        unavailable = {it: Trial(it, Path(folder) / it).unavailable() for it in kills}
    wanted = [
        (way, mode, seed)
        for mode, count in kills.items()
        if not unavailable[mode]
        for way, seed in plan(count, arguments.seed + 10_000 * list(kills).index(mode))
    ]
    found: list[Kill] = []
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        submitted = [pool.submit(kill_in_own_folder, WAYS.index(way), mode, seed) for way, mode, seed in wanted]
        for done in as_completed(submitted):
            found.append(done.result())
            if found[-1].troubles:
                print(found[-1], flush=True)
    text = "\n\n".join([introduction(found, unavailable), *by_way(found)])
    write(
        arguments.out,
        title="A storm of kills",
        command=command_line("bench.storm"),
        text=text,
        data={"unavailable": unavailable, "kills": [asdict(it) for it in sorted(found, key=lambda it: it.seed)]},
    )
    print(text)
    return 0 if found and not any(it.troubles for it in found) else 1


def introduction(found: Sequence[Kill], unavailable: dict[Mode, str]) -> str:
    """What was done, and what came of all of it together."""
    clean = sum(not it.troubles for it in found)
    said = [
        f"{len(found)} kills in {len({it.way for it in found})} ways at random moments, each of a study with trials at "
        f"work whose processes leave their session, their parent and their environment. After {clean} of them "
        f"everything was as it should be: all processes gone within {GONE_SECONDS:g} s, no mount left, the user's "
        "files unchanged, the study readable and resumed, and no folder of the run left then."
    ]
    said += [f"`{mode}` is not available here: {reason}" for mode, reason in unavailable.items() if reason]
    return " ".join(said)


def by_way(found: Sequence[Kill]) -> list[str]:
    """The counts and the seconds until the last process was gone, one table for each mode."""
    tables = []
    for mode in dict.fromkeys(it.mode for it in found):
        rows = []
        for way in WAYS:
            kills = [it for it in found if (it.way, it.mode) == (way.name, mode)]
            if kills:
                seconds = [it.gone_seconds for it in kills if it.gone_seconds is not None]
                clean = sum(not it.troubles for it in kills)
                middle = f"{statistics.median(seconds):.2f}" if seconds else "never"
                rows.append([way.name, str(len(kills)), str(clean), middle, f"{max(seconds, default=0.0):.2f}"])
        columns = ["what was killed", "kills", "clean", "seconds until gone, median", "maximum"]
        tables.append(f"## {mode}\n\n" + table(columns, rows))
    return tables


if __name__ == "__main__":
    sys.exit(main())
