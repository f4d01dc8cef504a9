"""Arguments of ``DistributedDataParallel`` and statements below it: written where the wrapper is made, or refused."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest
from patching import FACTS, after, left_out, patch_of

from hotlap.levers.support.situations import make_setting
from hotlap.records import CallSite, DataParallelFacts, ScriptFacts


def facts(tmp_path: Path, source: str, called: str) -> ScriptFacts:
    """The facts of a run in which the calls of that name made wrappers."""
    calls = [it for it in ast.walk(ast.parse(source)) if isinstance(it, ast.Call) and ast.unparse(it.func) == called]
    sites = [
        CallSite(
            role="call",
            file=str(tmp_path / "train.py"),
            line=it.lineno,
            column=it.col_offset,
            end_line=it.end_lineno,
            end_column=it.end_col_offset,
        )
        for it in calls
    ]
    return msgspec.structs.replace(
        FACTS, data_parallel=tuple(DataParallelFacts(processes=2, gradient_bytes=8, site=it) for it in sites)
    )


def patched(tmp_path: Path, source: str, lever: str, called: str = "DistributedDataParallel", **values: object) -> str:
    setting = make_setting(lever, **values)  # type: ignore[arg-type]
    patch = patch_of(tmp_path, source, (setting,), facts(tmp_path, source, called))
    assert not patch.left_out, patch.left_out[0].reason
    return after(patch, source)


IMPORT = "from torch.nn.parallel import DistributedDataParallel\n"


def test_an_argument_is_added(tmp_path: Path) -> None:
    source = IMPORT + "model = DistributedDataParallel(Net(), device_ids=[rank])\n"
    found = patched(tmp_path, source, "gradient-bucket-view")
    assert found == IMPORT + (
        "model = DistributedDataParallel(Net(), device_ids=[rank], gradient_as_bucket_view=True)\n"
    )


def test_an_argument_is_replaced(tmp_path: Path) -> None:
    source = "import torch\nmodel = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=25)\n"
    called = "torch.nn.parallel.DistributedDataParallel"
    found = patched(tmp_path, source, "gradient-buckets", called, bucket_cap_mb=50)
    assert "bucket_cap_mb=50)" in found


def test_the_search_for_unused_parameters_goes(tmp_path: Path) -> None:
    source = IMPORT.replace("\n", " as DDP\n") + "model = DDP(net, find_unused_parameters=True)\n"
    found = patched(tmp_path, source, "static-graph", "DDP")
    assert "DDP(net, find_unused_parameters=False, static_graph=True)" in found


@pytest.mark.parametrize("name", ["model", "self.model"])
def test_the_hook_is_registered_below_the_wrapper(tmp_path: Path, name: str) -> None:
    source = IMPORT + f"def main(self):\n    {name} = DistributedDataParallel(net)\n    train({name})\n"
    lines = patched(tmp_path, source, "gradient-compression", dtype="bfloat16").splitlines()
    at = lines.index(f"    {name} = DistributedDataParallel(net)")
    assert lines[at + 1].startswith(f"    {name}.register_comm_hook(None, ")
    assert lines[at + 1].endswith("bf16_compress_hook)")
    assert any("bf16_compress_hook" in it or "default_hooks" in it for it in lines if "import" in it)


@pytest.mark.parametrize(
    ("source", "called", "lever", "reason"),
    [
        (
            IMPORT + "train(DistributedDataParallel(net))\n",
            "DistributedDataParallel",
            "gradient-compression",
            "assigned",
        ),
        ("from mine import wrap\nmodel = wrap(net)\n", "wrap", "gradient-bucket-view", "made by wrap"),
        ("model = net\n", "DistributedDataParallel", "gradient-bucket-view", "No DistributedDataParallel"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path: Path, source: str, called: str, lever: str, reason: str) -> None:
    values = {"dtype": "bfloat16"} if lever == "gradient-compression" else {}
    assert reason in left_out(tmp_path, source, lever, facts(tmp_path, source, called), **values)
