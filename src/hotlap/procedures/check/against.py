"""Find what to compare with: a git revision, a plan file, a study, or the last recorded plan."""

from __future__ import annotations

from pathlib import Path

from hotlap import plan as plans_of
from hotlap import study
from hotlap.errors import StudyError, UsageError
from hotlap.gain import recorded_gain
from hotlap.levers.api import validate
from hotlap.records import Against, Plan, Study, Workload
from hotlap.redact import redacted
from hotlap.trial.checkout import find_commit, is_commit

USUAL_PLAN = Path("hotlap.toml")


def find_against(
    name: str | None, workload: Workload, studies: Path, *, plan_path: Path | None = None, without_plan: bool = False
) -> Against:
    """Resolve ``name``; without one, the last finished study of this script, else ``hotlap.toml``.

    ``plan_path`` is the plan under which a revision is compared (default: ``hotlap.toml`` if it exists, unless
    ``without_plan``). Raises :class:`UsageError` for an unknown or ambiguous name, and the errors of reading a plan or
    study.
    """
    if name is None:
        found = _recorded_last(workload, studies)
    elif _is_file(name, workload):
        found = _recorded_in(Path(name))
    else:
        commit = find_commit(workload, name).commit
        plan, plan_name = _common_plan(plan_path, without_plan)
        return Against(kind="revision", name=name, commit=commit, plan=plan, plan_name=plan_name)
    if plan_path is not None or without_plan:
        raise UsageError(
            f"{found.name} is the plan that is compared with no plan.",
            remedy="--plan and --no-plan go with a git revision as the baseline; leave them out.",
        )
    return found


def _is_file(name: str, workload: Workload) -> bool:
    """Whether a name is a file or folder. Raises :class:`UsageError` if it is a revision as well."""
    path = Path(name)
    if not path.exists():
        if path.suffix in (".toml", ".json"):
            raise UsageError(f"No plan or study {name!r} found.", remedy="`hotlap tune` writes both.")
        return False
    explicit = path.is_absolute() or name.startswith(("./", "../"))
    if not explicit and is_commit(Path(workload.directory), name):
        raise UsageError(
            f"{name!r} is both a file and a git revision.",
            remedy=f"Write ./{name} for the file, or refs/heads/{name} and the like for the revision.",
        )
    return True


def _common_plan(plan_path: Path | None, without_plan: bool) -> tuple[Plan, str]:
    if plan_path is not None and without_plan:
        raise UsageError("--plan and --no-plan exclude each other.", remedy="Give one of them.")
    if without_plan or (plan_path is None and not USUAL_PLAN.exists()):
        return plans_of.EMPTY, ""
    path = plan_path or USUAL_PLAN
    return plans_of.read(path), str(path)


# ---------------------------------------------------------------------------------------------
# Recorded plans
# ---------------------------------------------------------------------------------------------


def _recorded_in(path: Path) -> Against:
    if path.is_file() and path.suffix == ".toml":
        return _of_plan_file(path)
    found = study.load_study(path)
    if not found.plan.settings:
        raise UsageError(
            f"The study {found.identifier or path} kept no lever, so it recorded no gain.",
            remedy="Compare with a git revision, or with a study that kept one.",
        )
    return _of_study(found, str(path))


def _recorded_last(workload: Workload, studies: Path) -> Against:
    for directory in reversed(study.studies_in(studies)):
        try:
            found = study.load_study(directory)
        except StudyError:  # an unreadable study does not hide the others
            continue
        if found.status == "finished" and found.plan.settings and _same_script(found.workload, workload):
            return _of_study(found, str(directory))
    if USUAL_PLAN.exists():
        return _of_plan_file(USUAL_PLAN)
    raise UsageError(
        f"There is nothing to compare with: no finished study of {workload.target} with a plan, and no {USUAL_PLAN}.",
        remedy="Name a git revision, as in `hotlap check --baseline main train.py`, or run `hotlap tune` first.",
    )


def _same_script(one: Workload, other: Workload) -> bool:
    one, other = redacted(one), redacted(other)
    return (one.kind, one.target, one.arguments) == (other.kind, other.target, other.arguments)


def _of_plan_file(path: Path) -> Against:
    plan = plans_of.read(path)
    if not plan.settings:
        raise UsageError(f"The plan {path} has no levers.", remedy="Compare with a git revision instead.")
    return Against(kind="plan", name=str(path), plan=plan, plan_name=str(path), recorded=plans_of.read_gain(path))


def _of_study(found: Study, name: str) -> Against:
    """Check the plan of a study, of which only levers with valid values run. Raises :class:`PlanError`."""
    for it in found.plan.settings:
        validate(it)
    return Against(kind="plan", name=name, plan=found.plan, plan_name=name, recorded=recorded_gain(found))
