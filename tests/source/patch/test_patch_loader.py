"""The loader's lever in source: wherever its arguments come from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from patching import FACTS, facts_of, left_out, patch_of, patched

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import CallSite, LoaderFacts, ScriptFacts
from hotlap.source.patch.make import make_patch

HEAD = "from torch.utils.data import DataLoader\n"
PLAN = {"num_workers": 4, "persistent_workers": True, "prefetch_factor": 2}
NEW = "num_workers=4, prefetch_factor=2, persistent_workers=True"


def pairs(before: str, after: str, identifier: str) -> object:
    return pytest.param(HEAD + before, HEAD + after, id=identifier)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pairs("loader = DataLoader(ds)\n", f"loader = DataLoader(ds, {NEW})\n", "nothing"),
        pairs(
            "loader = DataLoader(ds, num_workers=0)\n",
            "loader = DataLoader(ds, num_workers=4, prefetch_factor=2, persistent_workers=True)\n",
            "literal",
        ),
        pairs(
            "loader = DataLoader(ds, 8, True, None, None, 0)\n",
            "loader = DataLoader(ds, 8, True, None, None, 4, prefetch_factor=2, persistent_workers=True)\n",
            "by position",
        ),
        pairs(
            "loader = DataLoader(\n    ds,\n    batch_size=8,  # small\n)\n",
            "loader = DataLoader(\n    ds,\n    batch_size=8,  # small\n    num_workers=4,\n    prefetch_factor=2,\n"
            "    persistent_workers=True,\n)\n",
            "on lines",
        ),
        pairs(
            "WORKERS = 0\nloader = DataLoader(ds, num_workers=WORKERS)\n",
            "WORKERS = 4\nloader = DataLoader(ds, num_workers=WORKERS, prefetch_factor=2, persistent_workers=True)\n",
            "constant",
        ),
        pairs(
            "CONFIG = {'workers': 0}\nloader = DataLoader(ds, num_workers=CONFIG['workers'])\n",
            "CONFIG = {'workers': 4}\n"
            "loader = DataLoader(ds, num_workers=CONFIG['workers'], prefetch_factor=2, persistent_workers=True)\n",
            "dictionary of constants",
        ),
        pairs(
            "class Config:\n    workers: int = 0\n\ncfg = Config()\nloader = DataLoader(ds, num_workers=cfg.workers)\n",
            "class Config:\n    workers: int = 4\n\ncfg = Config()\n"
            "loader = DataLoader(ds, num_workers=cfg.workers, prefetch_factor=2, persistent_workers=True)\n",
            "class of constants",
        ),
        pairs(
            "p.add_argument('-j', '--workers', type=int, default=0)\nargs = p.parse_args()\n"
            "loader = DataLoader(ds, num_workers=args.workers)\n",
            "p.add_argument('-j', '--workers', type=int, default=4)\nargs = p.parse_args()\n"
            "loader = DataLoader(ds, num_workers=args.workers, prefetch_factor=2, persistent_workers=True)\n",
            "option",
        ),
        pairs(
            "p.add_argument('--num-workers', type=int)\nargs = p.parse_args()\n"
            "loader = DataLoader(ds, num_workers=args.num_workers)\n",
            "p.add_argument('--num-workers', type=int, default=4)\nargs = p.parse_args()\n"
            "loader = DataLoader(ds, num_workers=args.num_workers, prefetch_factor=2, persistent_workers=True)\n",
            "option without a default",
        ),
        pairs(
            "options = {'batch_size': 8, 'num_workers': 0}\nloader = DataLoader(ds, **options)\n",
            "options = {'batch_size': 8, 'num_workers': 4, 'prefetch_factor': 2, 'persistent_workers': True}\n"
            "loader = DataLoader(ds, **options)\n",
            "keywords in a dictionary",
        ),
        pairs(
            "options = dict(batch_size=8)\nloader = DataLoader(ds, **options)\n",
            f"options = dict(batch_size=8, {NEW})\nloader = DataLoader(ds, **options)\n",
            "keywords in dict()",
        ),
        pairs(
            "options = {'batch_size': 8}\noptions.update(more)\nloader = DataLoader(ds, **options)\n",
            "options = {'batch_size': 8}\noptions.update(more)\nloader = DataLoader(ds, **{**options, "
            '"num_workers": 4, "prefetch_factor": 2, "persistent_workers": True})\n',
            "keywords that are changed elsewhere",
        ),
        pairs(
            "loader = DataLoader(ds, num_workers=0, **options())\n",
            "loader = DataLoader(ds, num_workers=4, **{**options(), "
            '"prefetch_factor": 2, "persistent_workers": True})\n',
            "keywords from a call",
        ),
        pairs(
            "def make_loader(ds, workers=0):\n    return DataLoader(ds, num_workers=workers)\n\nl = make_loader(ds)\n",
            "def make_loader(ds, workers=4):\n"
            "    return DataLoader(ds, num_workers=workers, prefetch_factor=2, persistent_workers=True)\n\n"
            "l = make_loader(ds)\n",
            "default of a function",
        ),
        pairs(
            "def make_loader(ds, workers):\n    return DataLoader(ds, num_workers=workers)\n\nl = make_loader(ds, 0)\n",
            "def make_loader(ds, workers):\n"
            "    return DataLoader(ds, num_workers=workers, prefetch_factor=2, persistent_workers=True)\n\n"
            "l = make_loader(ds, 4)\n",
            "argument of a function",
        ),
        pairs(
            "loader = DataLoader(ds, num_workers=min(2, n) if n else 0)\n",
            "loader = DataLoader(ds, num_workers=4, prefetch_factor=2, persistent_workers=True)\n",
            "computed",
        ),
        pairs(
            "class Loader(DataLoader):\n    pass\n\nloader = Loader(ds)\n",
            f"class Loader(DataLoader):\n    pass\n\nloader = Loader(ds, {NEW})\n",
            "subclass",
        ),
    ],
)
def test_where_the_arguments_come_from(tmp_path: Path, before: str, after: str) -> None:
    assert patched(tmp_path, before, "loader", **PLAN) == after


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("loader = DataLoader(*everything)\n", "hides its arguments"),
        ("loader = DataLoader(ds, num_workers=cfg.data.workers)\n", "set it to 4 there"),
        ("for n in (0, 1):\n    loader = DataLoader(ds, num_workers=n)\n", "cannot be determined"),
        ("loader = DataLoader(ds, **a, **b)\n", "several dictionaries"),
        ("class Loader(DataLoader):\n    def __init__(self, x): ...\n\nloader = Loader(ds)\n", "may not take"),
        (
            "def make_loader(w):\n    return DataLoader(ds, num_workers=w)\n\nmake_loader(1)\nmake_loader(2)\n",
            "whose callers set it",
        ),
    ],
)
def test_what_is_left_out(tmp_path: Path, source: str, words: str) -> None:
    assert words in left_out(tmp_path, HEAD + source, "loader", **PLAN)


def test_an_option_that_the_command_line_gives(tmp_path: Path) -> None:
    source = (
        HEAD
        + "p.add_argument('--workers', default=0)\nargs = p.parse_args()\nDataLoader(ds, num_workers=args.workers)\n"
    )
    for words in (("--workers", "1"), ("--workers=1",)):
        assert "say --workers 4 there" in left_out(tmp_path, source, "loader", arguments=words, **PLAN)


def test_what_the_loader_has_already_stays(tmp_path: Path) -> None:
    call = "DataLoader(ds, num_workers=n(), persistent_workers=True)"
    line = CallSite(role="loader", file=str(tmp_path / "train.py"), line=2)
    exact = msgspec.structs.replace(line, column=0, end_line=2, end_column=len(call))
    loader = LoaderFacts(dataset="Images", workers=4, persistent_workers=True, prefetch_factor=2, site=exact)

    def with_loader(**changes: object) -> ScriptFacts:
        return msgspec.structs.replace(FACTS, loaders=(msgspec.structs.replace(loader, **changes),))

    source = f"{HEAD}{call}\n"
    assert patched(tmp_path, source, "loader", with_loader(), **PLAN) == source
    assert "num_workers=4" in patched(tmp_path, source, "loader", with_loader(workers=2), **PLAN)
    # Of two calls in that line it is unknown which it was, unless the columns are known.
    assert "cannot be determined from the source" in left_out(
        tmp_path, source, "loader", with_loader(site=line), **PLAN
    )


def test_no_workers_take_what_needs_them_along(tmp_path: Path) -> None:
    call = "DataLoader(ds, num_workers=8, prefetch_factor=4, persistent_workers=True, pin_memory=True)"
    site = CallSite(role="loader", file=str(tmp_path / "train.py"), line=2, column=0, end_line=2, end_column=len(call))
    loader = LoaderFacts(
        dataset="Images", workers=8, persistent_workers=True, prefetch_factor=4, pin_memory=True, site=site
    )
    base = msgspec.structs.replace(FACTS, loaders=(loader,))
    assert (
        patched(tmp_path, f"{HEAD}{call}\n", "loader", base, num_workers=0) == f"{HEAD}DataLoader(ds, num_workers=0)\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("options = dict(num_workers=8, prefetch_factor=4)\n", "options = dict(num_workers=0)\n"),
        ("options = {'num_workers': 8}\n", "options = {'num_workers': 0}\n"),
    ],
)
def test_no_workers_in_a_dictionary(tmp_path: Path, before: str, after: str) -> None:
    call = "DataLoader(ds, **options)"
    site = CallSite(role="loader", file=str(tmp_path / "train.py"), line=3, column=0, end_line=3, end_column=len(call))
    loader = LoaderFacts(dataset="Images", workers=8, prefetch_factor=4, site=site)
    base = msgspec.structs.replace(FACTS, loaders=(loader,))
    assert patched(tmp_path, f"{HEAD}{before}{call}\n", "loader", base, num_workers=0) == f"{HEAD}{after}{call}\n"
    hidden = "options = {'num_workers': 8, 'prefetch_factor': 4}\n"
    assert "would have to go" in left_out(tmp_path, f"{HEAD}{hidden}{call}\n", "loader", base, num_workers=0)


def test_copies_need_not_wait_for_pinned_memory(tmp_path: Path) -> None:
    source = HEAD + (
        "for epoch in range(2):\n"
        "    for images, labels in DataLoader(ds):\n"
        "        images, labels = images.to(device), labels.cuda()\n"
        "        weights = constant.to(device)\n"
        "        images = images.to(torch.float32)\n"
        "        loss = model(images)\n"
        "        loss.backward()\n"
        "        done.to(device)\n"
    )
    base = msgspec.structs.replace(FACTS, device="cuda")
    new = patched(tmp_path, source, "loader", base, pin_memory=True, **PLAN)
    assert "images.to(device, non_blocking=True), labels.cuda(non_blocking=True)" in new
    assert "constant.to(device)\n" in new and "done.to(device)\n" in new and "to(torch.float32)\n" in new
    assert "pin_memory=True" in new


def test_copies_of_a_dictionary_of_tensors(tmp_path: Path) -> None:
    source = HEAD + (
        "for batch in DataLoader(ds):\n"
        "    batch = {name: tensor.to(device) for name, tensor in batch.items()}\n"
        "    loss = model(**batch).loss\n"
        "    loss.backward()\n"
    )
    base = msgspec.structs.replace(FACTS, device="cuda")
    new = patched(tmp_path, source, "loader", base, pin_memory=True, **PLAN)
    assert "tensor.to(device, non_blocking=True) for name, tensor" in new


def test_threads_go_to_the_top(tmp_path: Path) -> None:
    source = HEAD + "loader = DataLoader(ds)\n"
    new = patched(tmp_path, source, "loader", threads=1, **PLAN)
    assert new.startswith(f"import torch\n{HEAD}\ntorch.set_num_threads(1)\n")


def test_a_loader_that_a_library_made(tmp_path: Path) -> None:
    base = msgspec.structs.replace(FACTS, loaders=(LoaderFacts(dataset="Images"),))
    assert "inside a library" in left_out(tmp_path, "pass\n", "loader", base, **PLAN)


AT_THE_CALL = "prefetch_factor=2, persistent_workers=True"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "def train(cfg):\n    return DataLoader(ds, num_workers=cfg['num_workers'])\n\n"
            "CONFIG = {'num_workers': 0, 'rate': 0.1}\ntrain(CONFIG)\n",
            "CONFIG = {'num_workers': 4, 'rate': 0.1}\n",
            id="a dictionary that is handed over",
        ),
        pytest.param(
            "CONFIG = dict(num_workers=0)\nloader = DataLoader(ds, num_workers=CONFIG['num_workers'])\n",
            "CONFIG = dict(num_workers=4)\n",
            id="dict()",
        ),
        pytest.param(
            "cfg = {'data': {'num_workers': 0}}\nloader = DataLoader(ds, num_workers=cfg['data']['num_workers'])\n",
            "cfg = {'data': {'num_workers': 4}}\n",
            id="nested",
        ),
        pytest.param(
            "cfg = {'num_workers': 0}\nloader = DataLoader(ds, num_workers=cfg.get('num_workers', 2))\n",
            "cfg = {'num_workers': 4}\n",
            id="get",
        ),
        pytest.param(
            "DEFAULTS = {'num_workers': 0}\ncfg = {**DEFAULTS, 'rate': 1}\n"
            "loader = DataLoader(ds, num_workers=cfg['num_workers'])\n",
            "DEFAULTS = {'num_workers': 4}\n",
            id="defaults",
        ),
        pytest.param(
            "def settings():\n    return {'num_workers': 0}\n\ncfg = settings()\n"
            "loader = DataLoader(ds, num_workers=cfg['num_workers'])\n",
            "    return {'num_workers': 4}\n",
            id="made by a function",
        ),
        pytest.param(
            "from dataclasses import dataclass\n@dataclass\nclass Config:\n    num_workers: int = 2\n\n"
            "cfg = Config(num_workers=0)\nloader = DataLoader(ds, num_workers=cfg.num_workers)\n",
            "cfg = Config(num_workers=4)\n",
            id="an object's argument",
        ),
        pytest.param(
            "from dataclasses import dataclass, field\n@dataclass\nclass Config:\n    rate: float\n"
            "    num_workers: int = field(default=0)\n\n"
            "class Data:\n    def __init__(self, cfg: Config):\n        self.cfg = cfg\n"
            "    def loader(self):\n        return DataLoader(ds, num_workers=self.cfg.num_workers)\n\n"
            "Data(Config(0.1))\n",
            "    num_workers: int = field(default=4)\n",
            id="a field of an attribute",
        ),
        pytest.param(
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--num-workers', type=int, default=0)\n"
            "cfg = vars(p.parse_args())\nloader = DataLoader(ds, num_workers=cfg['num_workers'])\n",
            "p.add_argument('--num-workers', type=int, default=4)\n",
            id="options as a dictionary",
        ),
    ],
)
def test_settings_are_changed_where_they_are_defined(tmp_path: Path, before: str, after: str) -> None:
    new = patched(tmp_path, HEAD + before, "loader", **PLAN)
    assert after in new and AT_THE_CALL in new and "num_workers=4" not in new.partition("DataLoader(ds")[2][:30]


def test_a_setting_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("CONFIG = {'num_workers': 0}\nWORKERS = 0\n")
    for name, given in (("CONFIG", "CONFIG['num_workers']"), ("WORKERS", "WORKERS")):
        source = f"{HEAD}from config import {name}\nloader = DataLoader(ds, num_workers={given})\n"
        patch = patch_of(tmp_path, source, (make_setting("loader", **PLAN),))
        texts = {Path(it.path).name: it.after for it in patch.files}
        assert f"num_workers={given}, {AT_THE_CALL}" in " ".join(texts["train.py"].split())
        assert texts["config.py"].count("4") == 1 and not patch.left_out


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "import yaml\ncfg = yaml.safe_load(open('c.yaml'))\nDataLoader(ds, num_workers=cfg['num_workers'])\n",
            "yaml.safe_load loads in line 3 of train.py: set it in that file",
        ),
        (
            "cfg = {'num_workers': 0}\ncfg['num_workers'] = n\nDataLoader(ds, num_workers=cfg['num_workers'])\n",
            "set again in line 3",
        ),
    ],
)
def test_settings_that_come_from_elsewhere_say_where(tmp_path: Path, source: str, words: str) -> None:
    assert words in left_out(tmp_path, HEAD + source, "loader", **PLAN)


def sites_of(tmp_path: Path, source: str, *trains: bool) -> ScriptFacts:
    """Facts of the loaders of a source in order, with what each of them was used for."""
    (tmp_path / "train.py").write_text(source)
    facts = facts_of(tmp_path / "train.py")
    loaders = [msgspec.structs.replace(it, trains=used) for it, used in zip(facts.loaders, trains, strict=True)]
    return msgspec.structs.replace(FACTS, loaders=tuple(loaders))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("", "DataLoader(ds2)"),
        (", num_workers=WORKERS", "DataLoader(ds2, num_workers=WORKERS)"),
        (", num_workers=cfg['num_workers']", "DataLoader(ds2, num_workers=cfg['num_workers'])"),
        (", **common", "DataLoader(ds2, **common)"),
    ],
)
def test_a_loader_that_trains_nothing_gets_no_workers(tmp_path: Path, given: str, kept: str) -> None:
    settings = "WORKERS = 0\ncfg = {'num_workers': 0}\ncommon = {'batch_size': 8}\n"
    source = f"{HEAD}{settings}a = DataLoader(ds1{given})\nb = DataLoader(ds2{given})\n"
    new = patched(tmp_path, source, "loader", sites_of(tmp_path, source, True, False), **PLAN)
    assert settings in new and f"b = {kept}\n" in new
    changed = new.splitlines()[-2]
    assert (
        all(it in changed for it in ("4", "prefetch_factor", "persistent_workers")) and "a = DataLoader(ds1" in changed
    )


def test_a_line_that_makes_loaders_for_both_is_said(tmp_path: Path) -> None:
    source = f"{HEAD}def load(ds):\n    return DataLoader(ds)\n"
    facts = sites_of(tmp_path, source, True)
    both = msgspec.structs.replace(
        facts, loaders=(*facts.loaders, msgspec.structs.replace(facts.loaders[0], trains=False))
    )
    patch = patch_of(tmp_path, source, (make_setting("loader", **PLAN),), both)
    assert patch.written and "also makes a loader that is used only for evaluation" in patch.remarks[0]


def test_a_file_that_changed_since_is_left_alone_by_every_lever(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HEAD + "import torch\nloader = DataLoader(ds)\noptimizer = torch.optim.AdamW(weights)\n")
    facts = facts_of(script)
    files = tuple(msgspec.structs.replace(it, sha256="0" * 64) for it in facts.files)
    before = msgspec.structs.replace(facts, files=files)
    settings = (make_setting("loader", **PLAN), make_setting("fused-optimizer", implementation="fused"))
    changes = [(it, find(it.lever).rewrite(before, it)) for it in settings]
    patch = make_patch(before, changes, script=script, directory=tmp_path)
    assert not patch.files
    assert [it.reason for it in patch.left_out] == ["train.py has changed since the study."] * 2


ARGUMENTS = {"num_workers": 2, "persistent_workers": True}


def read_for(tmp_path: Path, source: str, *evaluates: bool) -> ScriptFacts:
    """Facts of loaders in order, each only for training or only for evaluation."""
    facts = sites_of(tmp_path, source, *(not it for it in evaluates))
    loaders = [msgspec.structs.replace(it, evaluates=used) for it, used in zip(facts.loaders, evaluates, strict=True)]
    return msgspec.structs.replace(facts, loaders=tuple(loaders))


def test_the_loader_of_an_evaluation_gets_workers_and_that_of_training_none(tmp_path: Path) -> None:
    source = f"{HEAD}training = DataLoader(ds1, batch_size=4)\nevaluating = DataLoader(ds2, batch_size=8)\n"
    new = patched(tmp_path, source, "evaluation-loader", read_for(tmp_path, source, False, True), **ARGUMENTS)
    assert new == source.replace("batch_size=8)", "batch_size=8, num_workers=2, persistent_workers=True)")


@pytest.mark.parametrize("evaluates", [False, True])
def test_one_line_for_both_and_none_for_evaluation_are_refused(tmp_path: Path, evaluates: bool) -> None:
    source = f"{HEAD}def load(ds):\n    return DataLoader(ds)\n"
    facts = read_for(tmp_path, source, False)
    if evaluates:
        other = msgspec.structs.replace(facts.loaders[0], trains=False, evaluates=True)
        facts = msgspec.structs.replace(facts, loaders=(*facts.loaders, other))
    reason = left_out(tmp_path, source, "evaluation-loader", facts, **ARGUMENTS)
    assert (
        "One line makes loaders for training and for evaluation" if evaluates else "only read for evaluation"
    ) in reason
