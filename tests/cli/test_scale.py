"""``hotlap scale --from``: a stored step for another cluster, without running anything."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import fakes
import msgspec
import pytest
from json_documents import assert_valid

from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.cli.scale import hours, link
from hotlap.experiment.options import Options
from hotlap.records import (
    Cluster,
    CollectiveRate,
    Link,
    MeasuredStep,
    ModelFacts,
    ReadyGradient,
    Run,
    ScriptFacts,
    Strategy,
    Study,
    ValidatedError,
)
from hotlap.render.scaling import NOT_VALIDATED, trust_sentences
from hotlap.scaling import predict
from hotlap.study import create_study

STEP = MeasuredStep(
    forward_seconds=0.1,
    backward_seconds=0.2,
    optimizer_seconds=0.02,
    gradients=tuple(ReadyGradient(share=(it + 1) / 10, size_bytes=40_000_000) for it in range(10)),
    samples=8,
    units=11,
    threads=1,
    parameter_bytes=400_000_000,
    gradient_bytes=400_000_000,
    optimizer_bytes=800_000_000,
    activation_bytes=500_000_000,
)
RATE = CollectiveRate(name="all-reduce", backend="gloo", processes=2, latency_seconds=1e-4, bytes_per_second=1e9)
HERE = Cluster(devices_per_node=2, within=Link(bytes_per_second=1.0), between=Link(bytes_per_second=1.0),
               measured=(RATE,), cores=2)  # fmt: skip


@pytest.fixture
def stored(work: Path) -> Path:
    """A study of ``hotlap scale``."""
    facts = ScriptFacts(models=(ModelFacts(kind="Net", parameters=10**8, flops_per_step=1e12),))
    found: Study = msgspec.structs.replace(
        fakes.FINISHED,
        kind="scale",
        baseline=Run(facts=facts),
        scale=predict(STEP, HERE),
        model_flop_utilisation=0.4,
        plan=type(fakes.FINISHED.plan)(),
        verification=None,
    )
    with create_study(work / ".hotlap" / "scale", fakes.WORKLOAD, Options()) as journal:
        journal.save(found)
        return journal.directory


def run(*words: str) -> int:
    def nothing_runs(*_: object) -> object:
        raise AssertionError("nothing may run")

    return main(["scale", *words], engine=Engine(executor=nothing_runs))  # type: ignore[arg-type]


CLUSTER = ("--nodes", "64", "--gpus-per-node", "8", "--device", "h100", "--link", "400Gb")


def test_a_stored_step_is_predicted_for_another_cluster(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--quiet", "--from", str(stored), *CLUSTER, "--device-price", "2.5EUR") == 0
    document = json.loads(capsys.readouterr().out)
    assert_valid(document)
    points = {(it["ranks"], it["strategy"]): it for it in document["scale"]["points"]}
    assert points[1, "ddp"]["step_seconds"] == pytest.approx(1e12 / (0.4 * 989.4e12))
    largest = points[512, "fsdp2"]
    assert largest["cost_per_million_samples"] == pytest.approx(512 * 2.5e6 / largest["samples_per_second"] / 3600)
    assert document["scale"]["measured"]["forward_seconds"] == 0.1
    assert document["scale"]["cluster"]["between"]["bytes_per_second"] == 50e9


def test_the_answer_names_limit_trust_and_assumptions(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--quiet", "--from", str(stored), *CLUSTER, "--mtbf", "5y", "--checkpoint-time", "60s") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "On 512 devices (64 nodes) a step is predicted to take" in out
    assert "Save a checkpoint about every" in out and "reaches 40 % of the peak" in out and "alidated" in out


def test_the_same_cluster_gives_the_same_answer(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json", "--quiet", "--from", str(stored), "--gpus-per-node", "2") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["scale"]["cluster"]["measured"][0]["latency_seconds"] == 1e-4
    again = predict(STEP, msgspec.structs.replace(HERE, cores=fakes.MACHINE.cores))
    assert [it["step_seconds"] for it in document["scale"]["points"]] == [it.step_seconds for it in again.points]


@pytest.mark.parametrize("measured", [False, True])
def test_what_strategies_add_is_measured_or_said_to_be_left_out(
    stored: Path, work: Path, capsys: pytest.CaptureFixture[str], measured: bool
) -> None:
    if measured:
        cluster = msgspec.structs.replace(HERE, measured=(RATE, msgspec.structs.replace(RATE, name="fsdp2-gather")))
        path = stored / "study.json"
        study = msgspec.json.decode(path.read_bytes())
        study["scale"] = msgspec.to_builtins(predict(STEP, cluster))
        path.write_bytes(msgspec.json.encode(study))
    assert run("--quiet", "--from", str(stored), "--gpus-per-node", "2") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert ("what they add was not measured" in out) is not measured
    assert run("--quiet", "--from", str(stored), "--gpus-per-node", "2", "--node-link", "1GB/s") == 0
    assert "what they add was not measured" in " ".join(capsys.readouterr().out.split())


def test_errors_and_assumptions_are_on_the_first_screen(
    stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names: tuple[Strategy, ...] = ("ddp", "zero-1", "fsdp2")
    machine = "Intel(R) Xeon(R) Processor @ 2.90GHz, 2 cores, 24 GiB, no accelerator"
    errors = tuple(
        ValidatedError(strategy=it, cases=12, mean_error=0.123, largest_error=0.456, most_ranks=4, machine=machine)
        for it in names
    )
    monkeypatch.setattr("hotlap.procedures.scale.validated_errors", lambda: errors)
    options = ("--device-price", "2.5EUR", "--mtbf", "5y", "--checkpoint-time", "60s")
    assert run("--quiet", "--from", str(stored), *CLUSTER, *options) == 0
    out = capsys.readouterr().out
    words = " ".join(out.split())
    assert "Outside of what was validated: other devices." in words
    assert "FSDP2 12 % (at most 46 %), with up to 4 processes." in words
    assert "A million samples cost" in words and "reaches 40 % of the peak" in words
    assert "512:" in words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "2"), "link between nodes"),
        (("--mtbf", "5y"), "belong together"),
        (("--device", "abacus"), "invalid choice"),
        (("--nodes", "1000000000"), "more than"),
        (("train.py",), "no script is run"),
    ],
)  # fmt: skip
def test_what_cannot_be_predicted(
    words: tuple[str, ...], said: str, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--from", str(stored), *words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "rate"),
    [("400Gb", 50e9), ("400Gbit/s", 50e9), ("50GB/s", 50e9), ("100 Mbps", 12.5e6), ("1.5TB/s", 1.5e12), ("8b", 1.0)],
)
def test_rates_of_links(text: str, rate: float) -> None:
    assert link(text) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "400", "0Gb", "-1Gb", "1e3Gb", "nanGb", "9" * 13 + "b", "1000TB/s1", "9999TB"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        link(text)


def test_times_between_failures() -> None:
    assert hours("50000h") == 1.8e8 and hours("1y") == 365.25 * 86400 and hours("2") == 7200
    with pytest.raises(argparse.ArgumentTypeError):
        hours("0h")


def test_predictions_quote_the_error_that_was_measured() -> None:
    assert list(trust_sentences(predict(STEP, HERE))) == [NOT_VALIDATED]
    error = ValidatedError(
        strategy="ddp", cases=12, mean_error=0.08, largest_error=0.21, most_ranks=4, machine="a machine"
    )
    sentences = list(trust_sentences(predict(STEP, msgspec.structs.replace(HERE, nodes=8), errors=[error])))
    assert sentences[0] == "Outside of what was validated: 2 and more ranks."  # of other strategies
    assert "DDP 8 % (at most 21 %), with up to 4 processes." in sentences[1]
    assert sentences[2] == "These were measured on a machine."
