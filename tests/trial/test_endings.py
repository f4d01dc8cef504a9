"""How a child ended, and its output as text that is safe to show."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.records import Completed, Crashed, OutOfMemory, Report, Run, Stopped, TimedOut
from hotlap.trial.endings import Departure, ending_of, kernel_memory_kills, may_lack_room, signal_name
from hotlap.trial.output import error_text, read_tail, shown

AT_OUR_WORD = Report(run=Run())
BY_ITSELF = Report(run=Run(), exit_code=0)

CHAINED = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    f()
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 5, in <module>
    raise RuntimeError("bad\\nnews")
RuntimeError: bad
news
"""
IN_A_WORKER = """Traceback (most recent call last):
  File "train.py", line 8, in <module>
    for x in loader:
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "worker.py", line 309, in _worker_loop
    data = fetcher.fetch(index)
ValueError: bad picture
"""
UNDER_A_LAUNCHER = """[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 7, in <module>
[rank1]:     main()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.
E0101 00:00:00.000000 1 elastic/api.py:869] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "run.py", line 138, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""
SPAWNED = """Traceback (most recent call last):
  File "spawn.py", line 190, in join
    raise ProcessRaisedException(msg, error_index, failed_process.pid)
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "train.py", line 4, in work
    raise ZeroDivisionError
ZeroDivisionError
"""
MARKED_AT_THE_LEFT = """Traceback (most recent call last):
  File "train.py", line 10, in <module>
    loss = model(batch)
           ^^^^^^^^^^^^
  File "eval_frame.py", line 1183, in compile_wrapper
    raise error.without_frames() from None
^^^^^^^^^^^^^^^^^^^^
  File "compile_fx.py", line 1079, in compile
    sizes = a[key]~~b
~~~~~~^^^^^
torch._inductor.exc.InductorError: TypeError: cannot determine truth value of Relational: 1 < s50

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
"""
NO_SYNTAX = '  File "train.py", line 1\n    def\n       ^\nSyntaxError: invalid syntax\n'
USAGE = "usage: train.py [-h] --data DATA\ntrain.py: error: the following arguments are required: --data\n"


@pytest.mark.parametrize(
    ("output", "error"),
    [
        (CHAINED, "RuntimeError: bad"),
        (IN_A_WORKER, "ValueError: bad picture"),
        (
            MARKED_AT_THE_LEFT,
            "torch._inductor.exc.InductorError: TypeError: cannot determine truth value of Relational: 1 < s50",
        ),
        (UNDER_A_LAUNCHER, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."),
        (SPAWNED, "ZeroDivisionError"),
        (NO_SYNTAX, "SyntaxError: invalid syntax"),
        (USAGE, "train.py: error: the following arguments are required: --data"),
        ("epoch 1\n" + CHAINED + "Exception ignored in atexit\n", "RuntimeError: bad"),
        ("", ""),
    ],
)
def test_the_line_that_names_the_error(output: str, error: str) -> None:
    assert error_text(output) == error


@pytest.mark.parametrize(
    ("departure", "kind"),
    [
        (Departure(exit_status=0, reports=(AT_OUR_WORD,), trainers=1, end_requested=True), Stopped),
        (Departure(exit_status=None, reports=(AT_OUR_WORD,), trainers=1, end_requested=True), Stopped),
        (Departure(exit_status=1, reports=(AT_OUR_WORD,) * 2, trainers=2, end_requested=True), Stopped),
        (Departure(exit_status=None, end_requested=True), Stopped),
        (Departure(exit_status=0, reports=(AT_OUR_WORD,)), Stopped),
        (Departure(exit_status=0, reports=(BY_ITSELF,), trainers=1), Completed),
        (Departure(exit_status=0, reports=(BY_ITSELF,), trainers=1, end_requested=True), Completed),
        (Departure(exit_status=None, reports=(BY_ITSELF,), trainers=1), Completed),
        (Departure(exit_status=0), Completed),
        (Departure(exit_status=1, reports=(BY_ITSELF,), trainers=1, output=CHAINED), Crashed),
        (Departure(exit_status=0, trainers=1), Crashed),
        (Departure(exit_status=None, reports=(AT_OUR_WORD,), trainers=2, end_requested=True), Crashed),
        (Departure(exit_status=0, reports=(BY_ITSELF,), trainers=1, trouble="it sent nonsense"), Crashed),
        (Departure(exit_status=-9, trainers=1), Crashed),
        (Departure(exit_status=-9, trainers=1, kernel_kills=1), OutOfMemory),
        (
            Departure(exit_status=1, trainers=1, kernel_kills=1, output="worker is killed by signal: Killed."),
            OutOfMemory,
        ),
        (Departure(exit_status=1, trainers=1, kernel_kills=1, output=CHAINED), Crashed),
        (Departure(exit_status=1, trainers=2, output=UNDER_A_LAUNCHER), OutOfMemory),
        (Departure(exit_status=1, trainers=1, output="CUDA out of memory, but went on\n" + CHAINED), Crashed),
        (Departure(exit_status=None, trainers=1, timed_out=TimedOut(limit_seconds=3, during="block")), TimedOut),
    ],
)
def test_each_departure_has_the_right_ending(departure: Departure, kind: type) -> None:
    assert type(ending_of(departure)) is kind


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 MiB",
        "torch.cuda.OutOfMemoryError: HIP out of memory.",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array with shape (1000000,)",
        "MemoryError",
        "OSError: [Errno 12] Cannot allocate memory",
        "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's"
        " workers are out of shared memory.",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    ],
)
def test_messages_that_mean_out_of_memory(message: str) -> None:
    output = f'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    x()\n{message}\n'
    ending = ending_of(Departure(exit_status=1, trainers=1, output=output))
    assert isinstance(ending, OutOfMemory)
    assert ending.error == message


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", True),
        ("RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR", True),
        ("RuntimeError: Unable to find an engine to execute this computation", True),
        ("RuntimeError: GET was unable to find an engine to execute this computation", True),
        ("torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", True),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", True),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", True),
        (
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            "port: 29500, useIPv6: false, code: -98, name: EADDRINUSE, message: address already in use",
            True,
        ),
        ("OSError: [Errno 98] Address already in use", True),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 4x8)", False),
        ("RuntimeError: CUDA error: device-side assert triggered", False),
    ],
)
def test_errors_that_may_be_caused_by_lack_of_memory(message: str, lacks: bool) -> None:
    output = f'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    x()\n{message}\n'
    ending = ending_of(Departure(exit_status=1, trainers=1, output=output))
    assert may_lack_room(ending) is lacks


@given(
    st.builds(
        Departure,
        exit_status=st.none() | st.integers(-64, 255),
        reports=st.lists(st.sampled_from([AT_OUR_WORD, BY_ITSELF]), max_size=3).map(tuple),
        trainers=st.integers(0, 3),
        end_requested=st.booleans(),
        kernel_kills=st.integers(0, 2),
        output=st.text(max_size=200),
        trouble=st.sampled_from(["", "it sent nonsense"]),
    )
)
def test_a_failure_is_never_reported_as_success(departure: Departure) -> None:
    ending = ending_of(departure)
    if isinstance(ending, Completed):
        assert not departure.exit_status
        assert len(departure.reports) >= min(1, departure.trainers)
    if isinstance(ending, Crashed):
        assert ending.error


@pytest.mark.parametrize(
    ("departure", "says"),
    [
        (Departure(exit_status=0, trainers=1, steps_done=5, output="step 5"), "called os._exit, or was replaced"),
        (Departure(exit_status=None, trainers=1, steps_done=5, output="step 5"), "closed its connection to hotlap"),
        (Departure(exit_status=None, trainers=2, steps_done=5, output="step 5"), "left while others waited"),
        (Departure(exit_status=None, trainers=2, steps_done=5, output=CHAINED), "RuntimeError: bad"),
        (Departure(exit_status=3, trainers=1, steps_done=5, output="step 5"), "exit code 3. Its last line was: step 5"),
        (Departure(exit_status=2, output=USAGE), "error: the following arguments are required: --data"),
        (Departure(exit_status=1, output=NO_SYNTAX), "SyntaxError: invalid syntax"),
        (Departure(exit_status=117, trainers=1, steps_done=5), "closed hotlap's connection"),
        (Departure(exit_status=0, left_running=True), "went on in the background"),
        (Departure(exit_status=0, reports=(BY_ITSELF,), trainers=2, left_running=True), "went on in the background"),
    ],
)
def test_the_error_describes_the_departure(departure: Departure, says: str) -> None:
    ending = ending_of(departure)
    assert isinstance(ending, Crashed)
    assert says in ending.error
    assert ending.steps_done == departure.steps_done


def test_a_helper_process_that_outlives_the_script_is_no_failure() -> None:
    """Allow, for example, a tracker's service to outlive the script."""
    departure = Departure(exit_status=0, reports=(BY_ITSELF,), trainers=1, left_running=True)
    assert ending_of(departure) == Completed()


ONE_RANK_KILLED = """E0101 elastic/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 7) of binary: /usr/bin/python
Traceback (most recent call last):
  File "run.py", line 138, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
  traceback : Signal 9 (SIGKILL) received by PID 7
"""


@pytest.mark.parametrize(
    ("departure", "from_outside"),
    [
        (Departure(exit_status=-9, trainers=1), True),
        (Departure(exit_status=1, trainers=2, output=ONE_RANK_KILLED), True),
        (
            Departure(exit_status=1, trainers=1, output="RuntimeError: worker (pid 1) is killed by signal: Killed."),
            True,
        ),
        (Departure(exit_status=-11, trainers=1), False),
        (Departure(exit_status=-15, trainers=1), False),
        (Departure(exit_status=1, trainers=1, output=CHAINED), False),
        (Departure(exit_status=0, trainers=1), False),
        (Departure(exit_status=None, trainers=2), False),  # hotlap killed it, as one of its processes had ended
        (Departure(exit_status=-9, trainers=1, trouble="it sent nonsense"), False),
    ],
)
def test_kills_from_outside_are_recognised(departure: Departure, from_outside: bool) -> None:
    ending = ending_of(departure)
    assert isinstance(ending, Crashed)
    assert ending.killed_from_outside is from_outside


def test_signals_have_names() -> None:
    assert signal_name(11) == "SIGSEGV"
    assert signal_name(99) == "99"


def test_the_kernel_is_queried() -> None:
    assert kernel_memory_kills() >= 0


# -- output ---------------------------------------------------------------------------------------


@given(st.binary(max_size=2000))
def test_any_bytes_become_printable_text(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any output"
    path.write_bytes(raw)
    tail = read_tail(path)
    assert not {it for it in tail if ord(it) < 32 or 127 <= ord(it) < 160} - {"\n", "\t"}
    assert len(shown(tail)) <= 4000
    assert len(error_text(tail)) <= 500


@given(st.text(alphabet=string.ascii_letters + " \n", max_size=500))
def test_plain_text_is_kept(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "plain output"
    path.write_text(text)
    assert read_tail(path) == text


def test_only_the_end_of_the_output_is_read(tmp_path: Path) -> None:
    (tmp_path / "output").write_bytes(b"a" * 10**6 + b"\nthe end\n")
    tail = read_tail(tmp_path / "output")
    assert tail.endswith("\nthe end\n")
    assert len(tail) < 10**5
    assert read_tail(tmp_path / "no such file") == ""
