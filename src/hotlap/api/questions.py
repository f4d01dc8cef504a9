"""Questions about one script or study: the origin of a NaN, a comparison with an earlier version, a patch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hotlap import study
from hotlap.api import engine
from hotlap.api.engine import STUDIES, OnProgress, say_nothing
from hotlap.api.reading import find_study
from hotlap.api.searches import workload_of
from hotlap.experiment.options import Options
from hotlap.records import NetworkMode

if TYPE_CHECKING:
    from hotlap.records import Check, NumbersHunt, Patch


def nan(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    network: NetworkMode = "open",
    unprotected: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> NumbersHunt:
    """Find the operation that makes a training script's first NaN or infinity; ``noticed`` is None if there was none.

    It looks at ``steps`` steps, or until the script ends, but no longer than ``seconds`` (None: as ``hotlap nan``).
    ``on_progress`` is called with a sentence at each stage. Raises as :func:`tune` does; nothing is stored.
    """
    from hotlap.procedures.numbers_hunt import HuntOptions, hunt
    from hotlap.trial.owned_folder import owned_folder

    options = HuntOptions(steps=steps, seed=seed, network=network, unprotected=unprotected)
    if seconds is not None:
        options = msgspec.structs.replace(options, seconds=seconds)
    with owned_folder("hotlap-nan-") as directory:
        executor = engine.local_executor(directory, options.isolation)
        return hunt(workload_of(script, arguments, module), options, executor, on_progress or say_nothing)


def check(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    baseline: str | os.PathLike[str] | None = None,
    plan_path: str | os.PathLike[str] | None = None,
    without_plan: bool = False,
    delta: float = 0.05,
    speed_only: bool = False,
    budget_seconds: float | None = None,
    seed: int = 0,
    parity_steps: int = 300,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    on_progress: OnProgress | None = None,
) -> Check:
    """Compare a training script with an earlier version, on this machine: is it slower, do its results differ?

    ``baseline`` is a git revision, a plan file, or a study; None means the last finished study of the script below
    ``directory``, else ``hotlap.toml``. With a revision both sides run under the plan ``plan_path`` (None:
    ``hotlap.toml`` where there is one), or ``without_plan``. ``delta`` is the smallest slowdown that counts, as a
    share. With ``speed_only`` the losses are not compared. The other arguments are those of :func:`tune`. ``verdict``
    of the answer is "passed", "failed" or "inconclusive"; it is kept below ``directory``, where ``hotlap history``
    finds it.

    Raises :class:`HotlapError`: a baseline that cannot be found or fails by itself, options that make no sense. A
    present script that fails is an answer.
    """
    from hotlap.procedures.check import find_against
    from hotlap.procedures.check.kept import check_and_keep

    workload = workload_of(script, arguments, module)
    against = find_against(
        None if baseline is None else os.fspath(baseline),
        workload,
        Path(directory),
        plan_path=None if plan_path is None else Path(plan_path),
        without_plan=without_plan,
    )
    options = Options(
        budget_seconds=budget_seconds,
        delta=delta,
        seed=seed,
        parity_steps=parity_steps,
        network=network,
        unprotected=unprotected,
    )
    return check_and_keep(
        workload,
        against,
        options,
        engine.local_executor,
        on_progress or say_nothing,
        studies=Path(directory),
        speed_only=speed_only,
    )


def patch(
    path: str | os.PathLike[str] = STUDIES,
    *,
    write: bool = False,
    prove: bool = True,
    again: bool = False,
    delta: float = 0.05,
    budget_seconds: float | None = None,
    seed: int = 0,
    parity_steps: int = 300,
    network: NetworkMode = "open",
    unprotected: bool = False,
    arguments: Sequence[str] | None = None,
    python: str | os.PathLike[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Patch:
    """Write the kept levers of a study into the script's source: ``diff`` of the answer is the change.

    ``path`` is a study, or a folder of studies for the last one with a plan. The patched copy is first run against the
    script with the same levers installed from outside, unless ``prove`` is False or this diff was proved before (and
    not ``again``). With ``write`` the files are changed, all of them or none. ``files`` is empty where nothing can be
    written, and ``left_out`` says why. ``delta`` is the slowdown that counts, as a share. ``arguments`` are the
    script's own, needed again only where they hold secrets. ``python`` is the interpreter of the proof, or the folder
    of its environment (None: the study's). The other arguments are those of :func:`tune`. Needs LibCST.

    Raises :class:`HotlapError`: a study that kept no lever or that this user did not make here, files that changed
    since the study or cannot be written, a patched copy that is slower or produces other results.
    """
    from hotlap.api.patches import keep_patch, patch_of, refuse_disproved, with_proof, write_patch
    from hotlap.trial.interpreter import checked_interpreter

    found = study.load_study(find_study(Path(path), "plan").directory)
    made = patch_of(found)
    if not made.files:
        return made
    if prove:
        options = Options(
            budget_seconds=budget_seconds,
            delta=delta,
            seed=seed,
            parity_steps=parity_steps,
            network=network,
            unprotected=unprotected,
        )
        given = None if arguments is None else msgspec.structs.replace(found.workload, arguments=tuple(arguments))
        listener: OnProgress = on_progress or say_nothing
        made = with_proof(
            found,
            made,
            options,
            engine.local_executor,
            lambda: nullcontext(listener),
            given=given,
            python="" if python is None else checked_interpreter(os.fspath(python)),
            again=again,
        )
        refuse_disproved(made)
    if write:
        write_patch(found, made)
    keep_patch(found, made)
    return made
