"""``hotlap tune``: find what makes a script faster on this machine, prove it, and keep it as a plan."""

from __future__ import annotations

import argparse
from functools import partial

import msgspec

from hotlap import api
from hotlap.cli import cluster, options, studies
from hotlap.cli.arguments import Parser, whole
from hotlap.cli.cluster import add_cluster_options, cluster_from
from hotlap.cli.goals import add_goal_options
from hotlap.cli.resuming import add_resume_option, resumed
from hotlap.cli.workload import add_python_option, interpreter_from, workload_from
from hotlap.errors import UsageError
from hotlap.experiment.options import Options
from hotlap.procedures.processes import checked_counts
from hotlap.records import StudyKind
from hotlap.study import SCALES

_DESCRIPTION = """\
Runs the script unmodified, measures where each step's time goes, tries known levers in paired
trials, checks that training still produces the same results, and writes a plan to train with."""

_EXAMPLES = """\
examples:
  hotlap tune train.py --epochs 1              everything after the script is passed to the script
  hotlap tune -m package.train --lr 3e-4       a module, as `python -m` runs it
  hotlap tune torchrun --nproc-per-node 2 train.py
  hotlap tune accelerate launch train.py       also fabric run, deepspeed, uv run, poetry run, python -u
  hotlap tune --budget 10m --only loader,mixed-precision train.py
  hotlap tune --quick train.py                 two minutes: the causes, and one measurement of each lever
  hotlap tune --goal memory --slowdown 1.3 train.py
                                               minimise peak memory, with steps at most 1.3x as long
  hotlap tune --allow batch-size train.py      also try a larger batch, which changes what is learned
  hotlap tune --nproc 1,2,4 train.py           how it scales here, by number of processes
  hotlap tune --executor ray train.py          replicates on all free nodes of a Ray cluster
  hotlap tune --executor slurm --nodes 4 --slurm partition=gpu train.py
  hotlap tune --resume                         continue the last study where it was interrupted
  hotlap tune --resume .hotlap/20260131-142501-337 train.py --wandb-key KEY
                                               secrets are not stored: give the command again
  hotlap tune --nproc 1,2,4 --resume           continue the last measurement by number of processes

A budget is overrun by at most one start or one step of the script, which cannot be cut off. One that
is too small for a proof ends in a quick look, which claims nothing and says which budget is enough.

exit code: 0 for an answer (gain or not, or the quick look that --quick asks for), the script's own code
if it failed, 2 for bad usage, 4 where the budget allowed no proof, 130 after Ctrl-C, which prints what
is known so far."""

_OF_THE_STUDY = (
    "budget", "delta", "parity_steps", "accept_unverified", "seed", "only", "skip", "allow", "show_output",
    "rounds", "startup_limit", "block_limit", "network", "unprotected", "quick", "goal", "slowdown", "batch_flag",
    "python", "sample_cache", *cluster.OF_THE_STUDY,
)  # fmt: skip


def parser() -> Parser:
    """The command's options."""
    made = Parser(
        "hotlap tune",
        _DESCRIPTION,
        _EXAMPLES,
        usage="hotlap tune [options] SCRIPT [arguments of the script]\n"
        "       hotlap tune [options] -m MODULE [arguments of the module]\n"
        "       hotlap tune --resume [STUDY] [SCRIPT and arguments, where they hold secrets]",
    )
    add_goal_options(made)
    add_python_option(made)
    options.add_search_options(made)
    options.add_quick_option(made)
    options.add_lever_options(made)
    options.add_batch_flag_option(made)
    add_cluster_options(made)
    options.add_output_options(made, plan_out="hotlap.toml")
    made.add_argument(
        "--nproc", type=_counts, default=(), metavar="N,N",
        help="try no lever; measure the script in these numbers of processes, each with the script's own batch",
    )  # fmt: skip
    add_resume_option(made)
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    made = parser()
    own, target = made.split(words)
    choices = options.parsed_options(made, own)
    if choices.resume:
        options.refuse_changed(made, choices, _OF_THE_STUDY)
        procedures: dict[StudyKind, api.Search] = {"search": engine.search, "processes": engine.processes}
        if choices.nproc:
            del procedures["search"]
            root = choices.study / SCALES
            return resumed(choices, target, root, "processes", engine, procedures, partial(_agrees, choices.nproc))
        return resumed(choices, target, choices.study, "search", engine, procedures)
    workload = workload_from(target, "tune", interpreter_from(choices))
    chosen = msgspec.structs.replace(options.options_from(choices), cluster=cluster_from(choices))
    if choices.nproc:
        chosen = msgspec.structs.replace(chosen, processes=choices.nproc)
        return studies.new_study(choices, workload, chosen, choices.study / SCALES, engine, engine.processes)
    return studies.new_study(choices, workload, chosen, choices.study, engine, engine.search)


def _agrees(counts: tuple[int, ...], stored: Options) -> None:
    """Refuse other numbers of processes than the study's. Raises :class:`UsageError`."""
    if checked_counts(stored.processes) != counts:
        raise UsageError(
            f"The study compares {', '.join(map(str, stored.processes))} processes.",
            remedy="A study continues with its original options; begin a new one without --resume.",
        )


def _counts(text: str) -> tuple[int, ...]:
    try:
        return checked_counts([whole(1, it) for it in text.split(",")])
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error.what)) from error
