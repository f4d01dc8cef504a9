"""Write the model of an inference study as a folder that can be deployed, and load it again to see that it is right.

One launch with the plan writes the folder and keeps the plan's outputs. A fresh process that cannot import hotlap loads
the folder with its own loader and calls the model with the same inputs: both must return the same, within what the
plan's own number format allows. Then the loaded model and the plan take turns.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hotlap import plan as plans_of
from hotlap.errors import ArtefactError, StudyError
from hotlap.experiment.comparing import compare_replicates
from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.failures import ran_through
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.replicates import ANALYSES, Design, replicate
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.trials import Arm, Trials
from hotlap.gain import comparison_of_plan
from hotlap.levers.support.engines import identifier
from hotlap.machine.label import machine_label
from hotlap.measure.quality import Unreadable, compared_outputs, outputs_of
from hotlap.measure.share import CONFIDENCE
from hotlap.records import (
    ArtefactProof,
    CaptureOutputs,
    OutputQuality,
    Plan,
    Run,
    SpeedComparison,
    Study,
    UseArtefact,
    Workload,
    WriteArtefact,
)
from hotlap.trial.executor import Executor
from hotlap.trial.loaded_alone import outputs_when_loaded_alone
from hotlap.wording import ending_text

ROUNDING = 1e-5
"""The relative error that float32 kernels of different libraries may have."""

_INPUTS = "inputs.npz"
_FEWEST_CALLS = 3
_ANOTHER = (
    "Search without it, with `hotlap infer --skip {lever}`, or write by hand what its page shows (`hotlap levers "
    "{lever}`)."
)


def write_artefact(
    found: Study,
    workload: Workload,
    options: Options,
    executor: Executor,
    folder: Path,
    on_progress: OnProgress = say_nothing,
    *,
    timed: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> ArtefactProof:
    """Write the plan's form of the model into ``folder``, and examine it.

    ``workload`` is the study's. Without ``timed`` the loaded model's speed is not compared with the plan's. Raises
    :class:`StudyError` if the study has no plan for a model's calls, and :class:`ArtefactError` if the model cannot be
    written, or its files return something else.
    """
    if found.workload.kind != "inference":
        raise StudyError("The study is not one of inference.", remedy="Make one with `hotlap infer`.")
    facts = found.baseline.facts if found.baseline is not None else None
    if facts is not None and facts.generation is not None:
        raise StudyError(
            "An artefact holds one call of a model, and `generate()` makes many.",
            remedy="Write the plan into your code, as `hotlap levers` shows for each lever.",
        )
    if facts is not None and facts.lengths is not None and facts.lengths.whole_passes:
        raise StudyError(
            "The study compared ways of forming batches, which is done by the code that calls the model.",
            remedy="Form them as `hotlap levers length-bucketing` shows, and search for a form without --lengths.",
        )
    if not found.plan.settings:
        raise StudyError(
            "The study kept no lever, so there is nothing to deploy but the unmodified model.",
            remedy="Save that with torch.export.save.",
        )
    return _Writing(found, workload, options, executor, on_progress, clock).run(folder, timed)


class _Writing:
    def __init__(
        self,
        found: Study,
        workload: Workload,
        options: Options,
        executor: Executor,
        on_progress: OnProgress,
        clock: Callable[[], float],
    ) -> None:
        self._found = found
        self._plan = found.plan
        self._options = options
        self._trials = Trials(workload, options, JournaledExecutor(executor, clock=clock))
        blank = msgspec.structs.replace(blank_study(workload, options, None), kind="inference")
        self._draft = StudyDraft(blank, self._trials, None, on_progress)

    def run(self, folder: Path, timed: bool) -> ArtefactProof:
        self._draft.report("trial", "Write the model as files")
        run = self._written()
        written = Path(run.artefact_path)
        shutil.copytree(written, folder, dirs_exist_ok=True)  # later trials see no other run's folder
        self._draft.report("parity", "Load the files in a fresh process without hotlap")
        alone = outputs_when_loaded_alone(
            self._trials.workload.python,
            folder,
            written.parent / _INPUTS,
            limit_seconds=self._options.startup_limit_seconds,
        )
        outputs, limit = self._same_outputs(run, alone)
        proof = self._proof(run, folder, alone, outputs, limit)
        if timed:
            speed, remark = self._speed(folder)
            proof = msgspec.structs.replace(proof, speed_of_files=speed, speed_remark=remark)
        return proof

    # -- writing ------------------------------------------------------------------------------

    def _written(self) -> Run:
        values = {it.lever: dict(it.values) for it in self._plan.settings}
        threads = values.get("cpu-threads", {}).get("threads", 0)
        mode = values.get("compile", {"mode": "default"} if "torchao-int8" in values else {}).get("mode", "")
        writing = WriteArtefact(compile_mode=str(mode), threads=int(threads))
        assignment = msgspec.structs.replace(
            self._trials.assignment(self._plan), instruments=(CaptureOutputs(), writing)
        )
        inputs = self._found.baseline.facts.inputs if self._found.baseline is not None else 0
        run = self._trials.launch(assignment, steps=max(_FEWEST_CALLS, inputs))
        if ran_through(run) and run.artefact_path:
            return run
        shown = ", ".join(plans_of.describe(it) for it in self._plan.settings)
        raise ArtefactError(
            f"The model cannot be written with {shown}: {ending_text(run.ending)}",
            where=run.output_path,
            remedy=_ANOTHER.format(lever=self._plan.settings[-1].lever),
        )

    # -- the same outputs ---------------------------------------------------------------------

    def _same_outputs(self, run: Run, alone: Mapping[str, Any]) -> tuple[tuple[OutputQuality, ...], float]:
        """The comparison and its limit.

        If the plan and the files both are within some error of the model in float32, they differ by at most twice that.
        """
        try:
            planned = {_renamed(key): it for key, it in outputs_of(run.outputs_path).items() if "/" in key}
        except Unreadable as error:
            raise ArtefactError(str(error), remedy="Run the command again.") from error
        numbers = {key.partition("/")[0] for key in planned}  # of very large outputs the first ones are kept
        outputs = compared_outputs(planned, {key: it for key, it in alone.items() if key.partition("/")[0] in numbers})
        comparison = comparison_of_plan(self._found)
        quality = comparison.quality if comparison is not None else None
        limit = max(ROUNDING, 2 * quality.worst_relative_error) if quality is not None else ROUNDING
        if isinstance(outputs, str):
            raise _mismatch(outputs)
        for it in outputs:
            if not it.finite:
                raise _mismatch(f"Its {it.name} holds NaN or infinity.")
            if not it.worst_relative_error <= limit:
                raise _mismatch(
                    f"Its {it.name} differs by a relative error of {it.worst_relative_error:.2g}, and {limit:.2g} is "
                    "the most that its number format explains."
                )
        return outputs, limit

    # -- the same speed -----------------------------------------------------------------------

    def _speed(self, folder: Path) -> tuple[SpeedComparison | None, str]:
        """The files' speed as a multiple of the plan's, or why there is none."""
        self._trials.most_waits = 0  # a ratio of arms that take turns needs no quiet machine
        begin(self._trials, self._draft)
        self._trials.rounds = self._options.rounds or FEWEST_ROUNDS
        batches = Plan(settings=tuple(it for it in self._plan.settings if it.lever == "batched-calls"))
        planned, loaded = Arm(self._plan), Arm(batches, instruments=(UseArtefact(folder=str(folder)),))
        design = Design(
            arms=(planned, planned, loaded),
            purpose="artefact",
            analyses=ANALYSES[:1],
            label="the files against the plan",
        )
        taken = replicate(self._trials, self._draft, design)
        if taken.failure is not None:
            return None, f"It could not be compared with the plan's: {taken.failure.reason}"
        return compare_replicates(taken.replicates, delta=self._options.delta, confidence=CONFIDENCE), ""

    # -- the proof ----------------------------------------------------------------------------

    def _proof(
        self, run: Run, folder: Path, alone: Mapping[str, Any], outputs: tuple[OutputQuality, ...], limit: float
    ) -> ArtefactProof:
        found, comparison = self._found, comparison_of_plan(self._found)
        calls = sorted(float(it) for it in alone["call_seconds"])
        return ArtefactProof(
            study=found.identifier,
            target=found.workload.target,
            plan=self._plan,
            machine=machine_label(found.machine),
            library_versions=found.machine.library_versions,
            hotlap_version=found.hotlap_version,
            form=run.engine.engine if run.engine is not None else "torch",
            quality=comparison.quality if comparison is not None else None,
            speed=comparison.speed if comparison is not None else None,
            inputs=len({key.partition("/")[0] for key in alone if "/" in key}),
            outputs=outputs,
            error_limit=limit,
            load_seconds=float(alone["load_seconds"]),
            resting_bytes=int(alone["resting_bytes"]),
            call_seconds=calls[math.floor((len(calls) - 1) / 2)],
            size_bytes=sum(it.stat().st_size for it in folder.rglob("*") if it.is_file()),
        )


def _renamed(key: str) -> str:
    number, _, name = key.partition("/")
    return f"{number}/{identifier(name)}"


def _mismatch(what: str) -> ArtefactError:
    return ArtefactError(
        f"The written model does not return what the plan returned. {what}",
        remedy="Nothing was written. Choose another form with `hotlap infer --skip`, or report this as an error.",
    )
