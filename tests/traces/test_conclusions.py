"""The conclusions about traces match those of an expert, with the reason next to each.

Times of the constructed traces are microseconds; all are of steady training unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from trace_writer import TraceWriter, kineto_text, write_text

from hotlap.traces import analyse, conclusion_of, host_time, read_trace
from hotlap.traces.records import Breakdown, Limit

SHARED = Path(__file__).parents[3] / "shared" / "traces"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"

# ---------------------------------------------------------------------------------------------
# Real traces
# ---------------------------------------------------------------------------------------------

REAL: dict[str, Limit] = {
    # 12.9 s of which the device works for 66 ms. The first convolution takes 10.8 s, of which cudaFree 6 s and
    # cudaLaunchKernel 3 s (code loading); later first uses allocate for another second: none of it is training.
    "hta_alexnet_cudasync.json.gz": "initialisation",
    # 3,874 kernels of 50 us in each step, half of them shorter than their launch; the host never waits, and is inside
    # CompiledFunction's operators for nine tenths of the idle time. Communication (25 %) comes second.
    "hta_v100x2_ddp_216k.json.gz": "launch_bound",
    # num_workers=0: five gaps of 50 to 60 ms, one before each step's upload, each inside the loader.
    "kineto_v100_resnet50_nw0.pt.trace.json.gz": "data_loader",
    # Four gaps of 125 ms, each inside the loader's __next__; the rest is busy with a softmax and two products.
    "tracelens_h100_owlv2.json.gz": "data_loader",
}


@pytest.mark.skipif(not SHARED.exists(), reason=f"the reference traces are not at {SHARED}")
@pytest.mark.parametrize("file", REAL)
def test_a_real_trace_has_the_cause_that_the_expert_found(file: str) -> None:
    found = conclusion_of(analyse(read_trace(SHARED / file)))
    assert found is not None
    assert found.limit == REAL[file]


# ---------------------------------------------------------------------------------------------
# Constructed traces
# ---------------------------------------------------------------------------------------------


def computing_at_full_speed() -> TraceWriter:
    """A queue that is never empty, float32 products without Tensor Cores: only faster kernels help."""
    it = TraceWriter()
    for begin in it.steps(3, 10_000):
        for kernel in range(begin, begin + 10_000, 1000):
            it.launch("volta_sgemm_128x64_nn", kernel - 900, kernel, 990)
    return it


def transforms_in_the_main_process() -> TraceWriter:
    """The loader takes two thirds of each step while nothing is queued."""
    it = TraceWriter()
    for begin in it.steps(3, 3000):
        it.host("operator", LOADER, begin + 10, 2000)
        it.launch("gemm", begin + 2020, begin + 2030, 900)
    return it


def a_read_of_the_loss_in_every_step() -> TraceWriter:
    """The host is ahead until ``.item()`` waits for the whole queue; then the device waits for the host."""
    it = TraceWriter()
    for begin in it.steps(4, 2000):
        it.launch("gemm", begin + 10, begin + 20, 1000)
        it.host("operator", "aten::item", begin + 30, 1010)
        it.host("call", "cudaStreamSynchronize", begin + 35, 1000)
    return it


def many_small_kernels() -> TraceWriter:
    """Kernels of 3 us, launched every 20 us, each of which starts at once."""
    it = TraceWriter()
    for begin in it.steps(3, 2000):
        for kernel in range(begin, begin + 1900, 20):
            it.host("operator", "aten::add", kernel, 18)
            it.launch("elementwise", kernel + 5, kernel + 12, 3)
    return it


def five_pageable_copies() -> TraceWriter:
    """Five uploads from pageable memory, each holding the host for 140 ms; the profiler lost their launches."""
    it = TraceWriter()
    for copy in range(5):
        begin = copy * 200_000
        it.launch("gemm", begin, begin + 10, 40_000)
        it.host("operator", "aten::copy_", begin + 40_000, 140_100)
        it.host("call", "cudaMemcpyAsync", begin + 40_050, 140_000)
        it.device("copy", PAGEABLE, begin + 180_100, 5_000, bytes=2**24)
    it.launch("gemm", 1_000_000, 1_000_010, 40_000)
    return it


def gradients_over_slow_links() -> TraceWriter:
    """An exposed all-reduce of symmetric memory after backward; DDP's forward spans half the step."""
    it = TraceWriter()
    for begin in it.steps(3, 3000):
        it.host("annotation", "DistributedDataParallel.forward", begin, 1200)
        it.launch("gemm", begin + 5, begin + 10, 1400)
        it.launch("void multimem_all_reduce_kernel<c10::BFloat16, 16>", begin + 20, begin + 1415, 1500, stream=20)
    return it


def compiled_long_ago() -> TraceWriter:
    """Dynamo's wrapper and its cache look-up span every call, but launching small kernels is what is slow."""
    it = TraceWriter()
    for begin in it.steps(3, 2000):
        it.host("python", "torch/_dynamo/eval_frame.py(1076): compile_wrapper", begin, 1980)
        it.host("operator", "TorchDynamo Cache Lookup", begin + 5, 60)
        it.host("operator", "Torch-Compiled Region: 0/0", begin + 70, 1900)
        for kernel in range(40):
            it.launch("triton_poi_fused_add_0", begin + 80 + kernel * 45, begin + 90 + kernel * 45, 8)
    return it


def compiling() -> TraceWriter:
    """The second step meets a new shape: Dynamo compiles for half a second."""
    it = TraceWriter()
    for step, begin in enumerate((0, 2000, 504_000)):
        it.step(step, begin, 502_000 if step == 1 else 1990)
        it.launch("gemm", begin + 1000, begin + 1010, 900)
    it.host("python", "torch/_dynamo/eval_frame.py(1076): compile_wrapper", 3000, 500_000)
    it.host("python", "torch/_dynamo/convert_frame.py(1500): _compile", 3050, 499_900)
    return it


def the_first_convolution() -> TraceWriter:
    """The context and cuDNN are initialised inside the first convolution, in a cudaFree of ten seconds."""
    it = TraceWriter()
    it.launch(PAGEABLE, 0, 10, 500, kind="copy", call="MemcpyAsync")
    it.host("operator", "aten::conv2d", 1000, 10_500_000)
    it.host("call", "cudaFree", 1100, 10_000_000)
    it.launch("cudnn_conv", 10_501_000, 10_501_010, 900)
    return it


def logging_between_steps() -> TraceWriter:
    """The device is idle from a step's last kernel to the next step's first, and no operator runs meanwhile."""
    it = TraceWriter()
    for begin in it.steps(4, 3000, 1500):
        it.host("python", "train.py(40): log", begin + 1500, 1500)
        it.launch("gemm", begin + 10, begin + 20, 1480)
    return it


def activations_swapped_to_the_host() -> TraceWriter:
    """Copies in both directions keep the device from computing for two thirds of the step."""
    it = TraceWriter()
    for begin in it.steps(3, 3000):
        it.launch("gemm", begin, begin + 5, 995)
        it.launch("Memcpy DtoH (Device -> Pinned)", begin + 5, begin + 1000, 1000, kind="copy", call="MemcpyAsync")
        it.launch("Memcpy HtoD (Pinned -> Device)", begin + 10, begin + 2000, 1000, kind="copy", call="MemcpyAsync")
    return it


CONSTRUCTED: dict[Callable[[], TraceWriter], Limit] = {
    computing_at_full_speed: "compute",
    transforms_in_the_main_process: "data_loader",
    a_read_of_the_loss_in_every_step: "host_sync",
    many_small_kernels: "launch_bound",
    five_pageable_copies: "blocking_copy",
    gradients_over_slow_links: "communication",
    compiled_long_ago: "launch_bound",
    compiling: "capture_or_compile",
    the_first_convolution: "initialisation",
    logging_between_steps: "between_steps",
    activations_swapped_to_the_host: "copies",
}


@pytest.mark.parametrize("make", CONSTRUCTED, ids=lambda it: it.__name__)
def test_a_constructed_trace_has_its_planted_cause(make: Callable[[], TraceWriter], tmp_path: Path) -> None:
    found = conclusion_of(analyse(read_trace(write_text(tmp_path / "trace.json", kineto_text(make().events)))))
    assert found is not None
    assert found.limit == CONSTRUCTED[make], make.__doc__
    assert 0.25 < found.share <= 1


def on_the_host(loader: float, operators: float, folder: Path) -> Breakdown:
    """Write a trace of the host alone with steps of 1000 microseconds."""
    it = TraceWriter()
    for begin in it.steps(3, 1000, 1000):
        it.host("operator", LOADER, begin, loader)
        it.host("operator", "aten::mm", begin + loader, operators)
    timeline = read_trace(it.write(folder / "trace.json"))
    return msgspec.structs.replace(analyse(timeline), host_time=host_time(timeline))


@pytest.mark.parametrize(
    ("loader", "operators", "limit"), [(600, 300, "data_loader"), (20, 950, "compute"), (0, 200, "python")]
)
def test_without_a_device_the_host_time_is_judged(loader: float, operators: float, limit: str, tmp_path: Path) -> None:
    found = conclusion_of(on_the_host(loader, operators, tmp_path))
    assert found is not None
    assert found.limit == limit


def test_an_unreliable_trace_has_no_conclusion(tmp_path: Path) -> None:
    writer = many_small_kernels()
    writer.host("call", "cudaGraphLaunch", 900, 10, correlation=9_000)
    assert conclusion_of(analyse(read_trace(writer.write(tmp_path / "trace.json")))) is None
