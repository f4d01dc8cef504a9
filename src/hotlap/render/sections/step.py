"""Where a step's time goes, before and after."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from hotlap.records import PhaseAccount, Study
from hotlap.render import markup, text
from hotlap.render.account import SHOWN_PHASES, account_remarks, samples_factor, time_account
from hotlap.render.disturbance import account_doubt
from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 10
title = "Where a step's time goes"


def terminal(material: Material) -> Section[RenderableType] | None:
    """Bars and a table; nothing for calls of a model, which have one phase."""
    study = material.study
    if study.account_before is None or study.account_before.is_of_calls:
        return None
    account = time_account(
        study.account_before, study.account_after, _after(study), doubt=account_doubt(study), run=study.run_account
    )
    return Section(title, (account,))


def markdown(material: Material) -> Section[str] | None:
    """A table with shares."""
    before = material.study.account_before
    if before is None or before.wall <= 0 or before.is_of_calls:
        return None
    return Section(title, tuple(_account(material.study, before)))


def page(material: Material) -> Section[PageBlock]:
    """The chart with its table."""
    return Section(title, (Figure("steps"),))


def _account(study: Study, before: PhaseAccount) -> Iterator[str]:
    after = study.account_after
    factor = samples_factor(before, after)
    accounts = [("before" if after else "unmodified", before, 1.0)]
    if after is not None:
        accounts.append((_after(study), after, factor))
    rows = []
    for shown in (*SHOWN_PHASES, None):
        cells = [shown.title if shown is not None else "whole step"]
        for _, account, by in accounts:
            part = account.seconds_in(shown.phase) if shown is not None else account.wall
            cells += [text.duration(part * by), text.share(part / account.wall) if account.wall else ""]
        rows.append(cells)
    yield from markup.table(("", *(it for name, *_ in accounts for it in (f">{name}", ">share"))), rows)
    for remark in account_remarks(before, after, factor, doubt=account_doubt(study), run=study.run_account):
        yield ""
        yield text.markdown(remark)


def _after(study: Study) -> str:
    return "after" if study.plan.settings else "given up"
