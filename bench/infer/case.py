"""One model with one batch size: the search, and the engines by hand, in pieces of some minutes each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from bench.infer.records import ByHand, Likeness, OnOthers, Row, Searched, Turns
from bench.pieces import check_time, piece, store, stored
from hotlap.api import engine as studies
from hotlap.experiment.comparing import compare_replicates
from hotlap.experiment.options import Options
from hotlap.gain import comparison_of_plan
from hotlap.measure.quality import compared_outputs, judge_quality, outputs_of
from hotlap.plan import describe
from hotlap.records import (
    Assignment,
    CaptureOutputs,
    Comparison,
    Estimate,
    Isolation,
    Kept,
    LaunchRequest,
    Plan,
    Replicate,
    Run,
    SpeedComparison,
    Steps,
    Stopped,
    Study,
    TaskQuality,
    TurnRequest,
    Workload,
)
from hotlap.study import studies_in
from hotlap.trial.executor import Executor
from hotlap.wording import ending_text

RANDOM = ("bert", "resnet")
"""Models whose weights are drawn at random: their speed alone means something."""
ROUNDS = 8
BLOCK_STEPS = 4
NEAR = 1.5
"""How many times as long as the fastest admissible engine's a call may take, where it was not timed in turns, for an
engine to be timed."""
MOST_TIMED = 3
FAR = 3.0
"""An engine whose call took so many times as long as the fastest admissible one's for a single sample is not tried for
larger batches."""
TOGETHER = 4
"""So many launches start, and build their engines, at the same time. Each makes its calls while the others wait."""
ALLOWED = 0.03
"""By which share the recommended form may be slower than the fastest admissible engine."""
START_SECONDS = 300.0
PIECE_SECONDS = 360.0
_CHOSEN_ARMS = 2


class Case:
    """Measures in a folder with the user's modules. What is finished is stored in ``pieces``, where a search that was
    killed goes on as well."""

    def __init__(
        self, user: Path, model: str, batch: int, replicates: int, pieces: Path, until: float | None = None
    ) -> None:
        self._user = user
        self._pieces = pieces / f"{model}-{batch}"
        self._model, self._batch = model, batch
        self._replicates = replicates
        self._until = until
        self._held_reference: Mapping[str, Any] | str | None = None

    def row(self, options: Options, engines: Sequence[str], single: Row | None = None) -> Row:
        """Search, compare the outputs of each engine, and time those that are near the fastest one.

        ``single`` is the row of single samples, by which engines are left out that are far behind. Raises
        :class:`TimeIsUp` where a piece would begin after ``until``.
        """
        options = msgspec.structs.replace(options, accept_unverified=self._model in RANDOM)
        found = self._piece("search", Searched, partial(self._searched, options))
        others = self._piece("others", OnOthers, partial(self._on_others, found)) if found.plan.settings else None
        left_out = far_behind(single) if single is not None else {}
        likenesses = self._likenesses([it for it in engines if it not in left_out], found)
        timed = nearest(likenesses)
        turns: list[Turns] = []
        compared: dict[str, SpeedComparison | None] = {}
        while timed and len(turns) < self._replicates * (2 if is_open(compared.values()) else 1):
            alive = [it for it in timed if not _failed(turns, it)]
            number = len(turns)
            turns.append(self._piece(f"turns-{number}", Turns, partial(self._turns, found.plan, alive, number)))
            compared = {it: against_chosen(turns, it) for it in timed}
        likenesses += [Likeness(engine=it, obstacle=why) for it, why in left_out.items() if it in engines]
        first = next((it for it in compared.values() if it is not None), None)
        return Row(
            model=self._model,
            batch=self._batch,
            chosen=", ".join(map(describe, found.plan.settings)) or "unmodified",
            status=found.status,
            spent_seconds=found.spent_seconds,
            speedup=found.speedup,
            quality=found.quality,
            others=others,
            engines=tuple(_by_hand(it, compared.get(it.engine), _failed(turns, it.engine)) for it in likenesses),
            copies=first.baseline_speedup if first is not None else None,
            remarks=first.remarks if first is not None else _without_rounds(turns),
        )

    def _piece(self, name: str, kind: type[Any], measure: Callable[[], Any]) -> Any:
        def in_time() -> Any:
            check_time(self._until)
            return measure()

        return piece(self._pieces, name, kind, in_time)

    def _searched(self, options: Options) -> Searched:
        root = self._pieces / "studies"
        if studies_in(root):
            study = studies.go_on(root, on_progress=studies.say_nothing, search=studies.inference_search)
        else:
            workload = self._workload("")
            search = studies.inference_search
            study = studies.begin(workload, options, root=root, on_progress=studies.say_nothing, search=search)
        if study.status == "interrupted":
            raise KeyboardInterrupt
        return searched(study, options.quality)

    # -- outputs -----------------------------------------------------------------------------------------

    def _on_others(self, found: Searched) -> OnOthers:
        plain, there, here = self._launches(
            self._to_compare("", Plan(), found.inputs, in_float32=True),
            self._to_compare("", Plan(), found.inputs, others=True, in_float32=True),
            self._to_compare("", found.plan, found.inputs, others=True),
        )
        self._held_reference = _outputs(plain)
        reference = _outputs(there)
        if isinstance(reference, str) or not isinstance(here.ending, Stopped):
            return OnOthers(below=True, text=reference if isinstance(reference, str) else ending_text(here.ending))
        first = here.engine.calibrated_inputs if here.engine is not None else 0
        quality = _judged(reference, outputs_of(here.outputs_path), found, first)
        return OnOthers(
            quality=quality.likeness,
            below=quality.verdict == "lost",
            beyond_chance=quality.verdict == "lost" and is_beyond_chance(quality),
            text=quality.text,
        )

    def _likenesses(self, engines: Sequence[str], found: Searched) -> list[Likeness]:
        """Those of all engines, some at a time; each is stored by itself."""
        paths = {it: self._pieces / f"outputs-{it}.json" for it in engines}
        missing = [it for it, path in paths.items() if stored(path, Likeness) is None]
        for start in range(0, len(missing), TOGETHER):
            check_time(self._until)
            for likeness in self._likeness_of(missing[start : start + TOGETHER], found):
                store(paths[likeness.engine], likeness)
        return [it for path in paths.values() if (it := stored(path, Likeness)) is not None]

    def _likeness_of(self, engines: Sequence[str], found: Searched) -> list[Likeness]:
        reference = self._reference(found.inputs)
        if isinstance(reference, str):
            return [Likeness(engine=it, obstacle=reference) for it in engines]
        runs = self._launches(*(self._to_compare(it, Plan(), found.inputs) for it in engines))
        return [_likeness(engine, run, reference, found) for engine, run in zip(engines, runs, strict=True)]

    def _reference(self, inputs: int) -> Mapping[str, Any] | str:
        """The outputs of the model in float32."""
        if self._held_reference is None:
            (run,) = self._launches(self._to_compare("", Plan(), inputs, in_float32=True))
            self._held_reference = _outputs(run)
        return self._held_reference

    # -- trials ------------------------------------------------------------------------------------------

    def _turns(self, plan: Plan, engines: Sequence[str], number: int) -> Turns:
        arms = [self._arm("", plan)] * _CHOSEN_ARMS + [self._arm(it, Plan()) for it in engines]
        request = TurnRequest(
            arms=tuple(arms), rounds=ROUNDS, block_steps=BLOCK_STEPS, order_seed=number, most_seconds=PIECE_SECONDS
        )
        taken: Replicate = self._executor.submit(request, self._executor.slots()[0]).result()
        runs = tuple(msgspec.structs.replace(it, steps=Steps()) for it in taken.runs)
        return Turns(engines=tuple(engines), replicate=msgspec.structs.replace(taken, runs=runs))

    def _to_compare(
        self, engine: str, plan: Plan, inputs: int, *, others: bool = False, in_float32: bool = False
    ) -> LaunchRequest:
        arm = msgspec.structs.replace(
            self._arm(engine, plan),
            workload=self._workload(engine, others=others),
            instruments=(CaptureOutputs(in_float32=in_float32),),
        )
        return LaunchRequest(assignment=arm, steps=inputs, most_seconds=PIECE_SECONDS)

    def _launches(self, *requests: LaunchRequest) -> tuple[Run, ...]:
        """Launches that start at the same time, and make their calls one after the other."""
        return self._executor.submit_together(requests, self._executor.slots()[0]).result()

    def _arm(self, engine: str, plan: Plan) -> Assignment:
        return Assignment(
            workload=self._workload(engine), step_source="call", plan=plan, startup_limit_seconds=START_SECONDS
        )

    def _workload(self, engine: str, *, others: bool = False) -> Workload:
        name = f"{self._model}_{self._batch}"
        return Workload(
            kind="inference",
            target=f"workloads:{name}" + (f"__{engine}" if engine else ""),
            arguments=("--inputs", f"workloads:{name}_{'others' if others else 'inputs'}"),
            directory=os.fspath(self._user),
            python=sys.executable,
        )

    @cached_property
    def _executor(self) -> Executor:
        return studies.local_executor(self._pieces / "by-hand", Isolation())


def searched(study: Study, level: float) -> Searched:
    """The part of a study that is compared with engines by hand."""
    comparison = _comparison_of_plan(study)
    quality = comparison.quality if comparison is not None else None
    baseline = study.baseline
    return Searched(
        plan=study.plan,
        level=level,
        inputs=baseline.facts.inputs if baseline is not None else 0,
        speedup=comparison.speed.speedup if comparison is not None else None,
        quality=quality.likeness if quality is not None else None,
        status=study.status,
        spent_seconds=study.spent_seconds,
    )


def nearest(likenesses: Sequence[Likeness]) -> list[str]:
    """The admissible engines that may be the fastest one."""
    known = sorted((it.call_seconds, it.engine) for it in likenesses if it.admissible and it.call_seconds)
    return [engine for seconds, engine in known if seconds <= NEAR * known[0][0]][:MOST_TIMED]


def far_behind(single: Row) -> dict[str, str]:
    """The engines that are not worth trying for larger batches, with the reason."""
    known = [it.call_seconds for it in single.engines if it.admissible and it.call_seconds]
    fastest = min(known, default=0.0)
    return {
        it.engine: f"Not tried: for single samples a call took {it.call_seconds / fastest:.1f} times as long as the "
        "fastest admissible one."
        for it in single.engines
        if fastest and it.call_seconds and it.call_seconds > FAR * fastest
    }


def is_open(compared: Iterable[SpeedComparison | None]) -> bool:
    """Whether an engine looks faster than allowed, and its interval has room for both."""
    found = [it.speedup for it in compared if it is not None]
    return any(it.low <= 1 + ALLOWED < it.value for it in found)


def against_chosen(turns: Sequence[Turns], engine: str) -> SpeedComparison | None:
    """An engine against the recommended form, over all replicates that it went through; None for fewer than two."""
    rows: list[Replicate] = []
    for it in turns:
        if engine in it.engines and it.replicate.rounds and it.replicate.rounds[0]:
            arms = (0, 1, _CHOSEN_ARMS + it.engines.index(engine))
            rounds, runs = (tuple(all_of[arm] for arm in arms) for all_of in (it.replicate.rounds, it.replicate.runs))
            rows.append(msgspec.structs.replace(it.replicate, rounds=rounds, runs=runs))
    return compare_replicates(rows, delta=0.01, confidence=0.95) if len(rows) > 1 else None


def is_beyond_chance(quality: TaskQuality) -> bool:
    """Whether an output is below the level by its cosine, or with the whole interval of its decisions."""
    level = quality.level
    return (
        any(
            not it.finite or it.cosine < level or (it.agreement is not None and it.agreement.high < level)
            for it in quality.outputs
        )
        or not quality.outputs
    )


def renamed(outputs: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """Outputs with the reference's names: engines return tensors by number."""
    names: dict[str, list[str]] = {}
    for key in reference:
        number, slash, _ = key.partition("/")
        if slash and number.isdecimal():
            names.setdefault(number, []).append(key)
    found: dict[str, Any] = {}
    for number, wanted in names.items():
        own = [it for key, it in outputs.items() if key.startswith(f"{number}/")]
        found |= dict(zip(wanted, own, strict=False))
    return found


def _judged(reference: Mapping[str, Any], outputs: Mapping[str, Any], found: Searched, first: int) -> TaskQuality:
    compared = compared_outputs(reference, outputs, first=first)
    return judge_quality(compared, level=found.level, inputs=found.inputs - first, random_weights=0.0, proof="rounding")


def _outputs(run: Run) -> Mapping[str, Any] | str:
    """What a launch returned for each input, or why there is nothing."""
    return outputs_of(run.outputs_path) if isinstance(run.ending, Stopped) else ending_text(run.ending)


def _likeness(engine: str, run: Run, reference: Mapping[str, Any], found: Searched) -> Likeness:
    outputs = _outputs(run)
    if isinstance(outputs, str):
        return Likeness(engine=engine, obstacle=outputs)
    first = found.inputs // 2 if "int8" in engine else 0
    quality = _judged(reference, renamed(outputs, reference), found, first)
    calls = run.steps.wall_seconds
    return Likeness(
        engine=engine,
        quality=quality.likeness,
        admissible=quality.verified,
        call_seconds=median(calls[len(calls) // 2 :]) if calls else None,
    )


def _failed(turns: Sequence[Turns], engine: str) -> str:
    """How an engine ended a replicate; empty if it did not."""
    for it in turns:
        if engine in it.engines:
            ending = it.replicate.runs[_CHOSEN_ARMS + it.engines.index(engine)].ending
            if not isinstance(ending, Stopped):
                return ending_text(ending)
    return ""


def _without_rounds(turns: Sequence[Turns]) -> tuple[str, ...]:
    said = f"No engine was timed: fewer than two replicates were complete within {PIECE_SECONDS:g} s each."
    return (said,) if turns else ()


def _by_hand(it: Likeness, compared: SpeedComparison | None, failed: str) -> ByHand:
    against: Estimate | None = compared.speedup if compared is not None else None
    return ByHand(
        engine=it.engine,
        quality=it.quality,
        admissible=it.admissible,
        call_seconds=it.call_seconds,
        against_chosen=against,
        obstacle=it.obstacle or failed,
    )


def _comparison_of_plan(study: Study) -> Comparison | None:
    found = comparison_of_plan(study)
    if found is not None:
        return found
    kept = [it.verdict.comparison for it in study.outcomes if isinstance(it.verdict, Kept)]
    return kept[-1] if kept else None
