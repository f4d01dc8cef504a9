"""``python -m bench.lint_impact --out docs/benchmarks/lint-impact``: what the patterns that lint finds cost.

A folder of ``pairs`` is named after a rule and holds a script with its pattern, and the same script without it if the
rule has no fix. Both take turns in fresh launches. Rules whose pattern costs nothing without an
accelerator have no pair.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bench.lint_impact import report
from bench.lint_impact.report import Impact
from bench.report import command_line, write, written
from hotlap.errors import HotlapError
from hotlap.experiment.comparing import BASELINE, CANDIDATE, compare_replicates, largest_peak_bytes
from hotlap.experiment.costs import USUAL_ROUNDS
from hotlap.experiment.draft import StudyDraft, say_nothing
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.replicates import Design, anything, replicate
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.trials import Arm, Trials
from hotlap.measure.speed import HEADLINE_CONFIDENCE, HEADLINE_REPLICATES
from hotlap.records import Workload
from hotlap.source.lint.api import Rule, all_rules
from hotlap.source.lint.fix import fix
from hotlap.trial.local import LocalExecutor

PAIRS = Path(__file__).parent / "pairs"
SLOW, FAST = "slow.py", "fast.py"
TWO_PROCESSES = ("accumulation-without-no-sync",)


def pairs() -> Mapping[str, Path]:
    """The folder of each rule that has one, by the rule's code, in order."""
    folders = {it.name.replace("_", "-"): it for it in PAIRS.iterdir() if (it / SLOW).is_file()}
    known = {it.name: it for it in all_rules().values()}
    return dict(sorted((known[name].code, folder) for name, folder in folders.items()))


def workload_of(script: Path, rule: Rule) -> Workload:
    """The command that runs a script; the folder that it runs in holds nothing else."""
    plain = Workload(kind="script", target=str(script), directory=str(script.parent), python=sys.executable)
    if rule.name not in TWO_PROCESSES:
        return plain
    arguments = ("--standalone", "--nproc-per-node=2", str(script))
    return msgspec.structs.replace(plain, kind="module", target="torch.distributed.run", arguments=arguments)


def without_pattern(rule: Rule, folder: Path, scratch: Path) -> Path:
    """The script without the pattern: by the rule's own fix, or as it is stored next to it."""
    if (folder / FAST).exists():
        return folder / FAST
    made = scratch / FAST
    fixed = fix((folder / SLOW).read_text(encoding="utf-8"), [rule], {"safe", "unsafe"})
    made.write_text(fixed.text, encoding="utf-8")
    return made


def measure(rule: Rule, folder: Path, scratch: Path) -> Impact:
    """One pair. Raises :class:`HotlapError` where a script cannot be measured."""
    about = (ast.get_docstring(ast.parse((folder / SLOW).read_text(encoding="utf-8"))) or "").rstrip(".")
    slow, fast = (workload_of(it, rule) for it in (folder / SLOW, without_pattern(rule, folder, scratch)))
    trials = Trials(slow, Options(), JournaledExecutor(LocalExecutor(scratch / "runs"), clock=time.monotonic))
    draft = StudyDraft(blank_study(slow, trials.options, None), trials, None, say_nothing)
    begin(trials, draft)
    arms = [Arm(), Arm(), Arm(workload=fast)]
    design = Design(arms=arms, purpose="impact", analyses=(HEADLINE_REPLICATES,), rounds=USUAL_ROUNDS, accept=anything)
    found = replicate(trials, draft, design)
    if found.failure is not None:
        return Impact(code=rule.code, name=rule.name, about=about, trouble=found.failure.reason)
    replicates = found.replicates
    compared = compare_replicates(replicates, delta=trials.options.delta, confidence=HEADLINE_CONFIDENCE)
    return Impact(
        code=rule.code,
        name=rule.name,
        about=about,
        speedup=compared.speedup.value,
        low=compared.speedup.low,
        high=compared.speedup.high,
        confidence=compared.confidence,
        replicates=compared.replicates,
        rounds=compared.rounds,
        slow_peak_bytes=largest_peak_bytes(replicates, BASELINE),
        fast_peak_bytes=largest_peak_bytes(replicates, CANDIDATE),
        trouble="" if compared.baseline_agrees else " ".join(compared.remarks),
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure pair after pair; the report is written after each, so that a cut loses nothing."""
    parser = argparse.ArgumentParser(prog="python -m bench.lint_impact", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="where to write: OUT.md and OUT.json")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CODE", help="measure these again; the others' results stay in OUT"
    )
    options = parser.parse_args(arguments)
    known = all_rules()
    impacts = kept(options.out) if options.only else {}
    for code, folder in pairs().items():
        if options.only and code not in options.only:
            continue
        with tempfile.TemporaryDirectory(prefix="hotlap-lint-impact-") as scratch:
            try:
                impacts[code] = measure(known[code], folder, Path(scratch))
            except HotlapError as error:
                impacts[code] = Impact(code=code, name=known[code].name, about="", trouble=str(error))
        print(impacts[code], file=sys.stderr, flush=True)
        ordered = [impacts[it] for it in sorted(impacts)]
        write(
            options.out,
            title="What the patterns cost that lint finds",
            command=command_line("bench.lint_impact"),
            text=report.markdown(ordered, [it for it in known if it not in pairs()], options.only),
            data=[msgspec.to_builtins(it) for it in ordered],
        )
    return 1 if any(it.trouble for it in impacts.values()) else 0


def kept(out: Path) -> dict[str, Impact]:
    """The results that an earlier run left in OUT.json."""
    return {it.code: it for it in msgspec.convert(written(out) or [], list[Impact])}


if __name__ == "__main__":
    raise SystemExit(main())
