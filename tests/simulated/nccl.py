"""NCCL for simulated devices: gloo carries the numbers, a kernel on a stream of its own takes the time.

A collective begins when the last rank's stream has come to it, which the ranks exchange, and takes what its
bytes need on the link between devices. Numbers are the same whichever rank comes first. A rank that waits for another
longer than the group's time-out is aborted, as by NCCL's watchdog; that time passes for real.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

LATENCY_NANOSECONDS = 20_000.0
BYTES_PER_SECOND = 1.5e11


def install(torch: Any, device: Any) -> None:
    """Give ``torch.distributed`` a backend of that name; nothing where this torch has no process groups."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    distributed_c10d._NCCL_AVAILABLE = True
    distributed_c10d.ProcessGroupNCCL = _group(torch, device)
    distributed_c10d.default_pg_nccl_timeout = timedelta(minutes=10)
    torch.distributed.ProcessGroupNCCL = distributed_c10d.ProcessGroupNCCL
    torch.cuda.nccl.version = lambda: (2, 27, 3)


class Options:
    """What a caller may set; nothing of it changes the simulation but the timeout."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self._timeout = timedelta(minutes=10)
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""


def _group(torch: Any, device: Any) -> type:
    from torch._C import _distributed_c10d as core
    from torch.distributed import distributed_c10d

    library = device.library

    class Work(core.Work):  # type: ignore[misc]
        def __init__(self, index: int, stream: int, result: list[Any]) -> None:
            super().__init__()
            self._index, self._done = index, library.ready(index, stream)
            with torch.cuda.stream(torch.cuda.Stream(index, stream_id=stream)):
                self._future = torch.futures.Future(devices=[f"cuda:{index}"])
                self._future.set_result(result)

        def wait(self, timeout: Any = None) -> bool:
            library.stream_waits(self._index, library.current_stream(self._index), self._done)
            return True

        def is_completed(self) -> bool:
            return bool(self._done <= library.now())

        def get_future(self) -> Any:
            return self._future

    class ProcessGroupNCCL(core.ProcessGroup):  # type: ignore[misc]
        def __init__(self, store: Any, rank: int, size: int, options: Any = None) -> None:
            super().__init__(rank, size)
            self.options = options or Options()
            self._gloo = core.ProcessGroupGloo(store, rank, size, self.options._timeout)
            self._streams: dict[int, int] = {}
            atexit.register(self.shutdown)

        def shutdown(self) -> None:
            """End gloo's threads while there is an interpreter: one that lets go of a tensor later ends the process."""
            self._gloo = None
            atexit.unregister(self.shutdown)

        abort = shutdown

        def getBackendName(self) -> str:
            return "nccl"

        @property
        def group_name(self) -> str:
            """As torch knows it: a group that is written in Python is not told."""
            return str(distributed_c10d._world.pg_names[self])

        @property
        def _device_types(self) -> list[Any]:
            return [torch.device("cuda")]

        def _set_sequence_number_for_group(self) -> None:
            pass

        def _set_default_timeout(self, timeout: timedelta) -> None:
            self.options._timeout = timeout

        # -- what every collective does ------------------------------------------------------------

        def _collective(
            self, name: str, given: Sequence[Any], filled: Sequence[Any], carry: Callable[[list[Any], list[Any]], Any]
        ) -> Any:
            """``carry`` moves numbers between copies on the host: of what is given, and of what is to be filled."""
            index = given[0].device.index if given else library.current_device()
            library.set_silent(1)
            try:
                ours = [it.detach().cpu() for it in given]
                theirs = ours if filled is given else [it.detach().cpu() for it in filled]
                began = torch.tensor([max(library.now(), library.ready(index, library.current_stream(index)))])
                latest = core.AllreduceOptions()
                latest.reduceOp = core.ReduceOp.MAX
                try:
                    carry(ours, theirs).wait()
                    self._gloo.allreduce([began], latest).wait()
                except RuntimeError as error:
                    self._abort_if_too_late(name, error)
                    raise
                with torch.no_grad():
                    for it, value in zip(filled, theirs, strict=True):
                        it.copy_(value)
            finally:
                library.set_silent(0)
            if index not in self._streams:
                self._streams[index] = library.new_stream(index)
            stream = self._streams[index]
            library.stream_waits(index, stream, int(began.item()))
            moved = sum(it.numel() * it.element_size() for it in (*given, *filled)) / 2
            share = 2 * (self.size() - 1) / self.size()
            seconds = share * moved / BYTES_PER_SECOND
            library.launch(index, stream, f"ncclDevKernel_{name}".encode(), LATENCY_NANOSECONDS + 1e9 * seconds)
            return Work(index, stream, list(filled))

        def _abort_if_too_late(self, name: str, error: RuntimeError) -> None:
            """End the process after a time-out, unless the watchdog is told to leave it (its variable is 0)."""
            if "imed out" not in str(error) or os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING") == "0":
                return
            milliseconds = round(1000 * self.options._timeout.total_seconds())
            sys.stderr.write(
                f"[rank{self.rank()}]: Watchdog caught collective operation timeout: WorkNCCL(OpType={name}, "
                f"Timeout(ms)={milliseconds}) ran for {milliseconds} milliseconds before timing out.\n"
            )
            sys.stderr.flush()
            os.abort()

        # -- collectives ---------------------------------------------------------------------------

        def allreduce(self, tensors: list[Any], options: Any = None) -> Any:
            options = options or core.AllreduceOptions()
            averages = options.reduceOp == core.ReduceOp.AVG
            if averages:  # gloo has no mean
                options.reduceOp = core.ReduceOp.SUM

            def carry(ours: list[Any], theirs: list[Any]) -> Any:
                work = self._gloo.allreduce(ours, options)
                work.wait()
                if averages:
                    for it in ours:
                        it.div_(self.size())
                return work

            return self._collective("AllReduce_Sum_f32_RING_LL", tensors, tensors, carry)

        def allreduce_coalesced(self, tensors: list[Any], options: Any = None) -> Any:
            return [self.allreduce([it], options) for it in tensors][-1]

        def broadcast(self, tensors: list[Any], options: Any = None) -> Any:
            options = options or core.BroadcastOptions()
            return self._collective(
                "Broadcast_RING_LL", tensors, tensors, lambda ours, theirs: self._gloo.broadcast(ours, options)
            )

        def allgather(self, outputs: list[list[Any]], inputs: list[Any], options: Any = None) -> Any:
            (output,) = outputs
            return self._collective(
                "AllGather_RING_LL", inputs, output, lambda ours, theirs: self._gloo.allgather([theirs], ours)
            )

        def _allgather_base(self, output: Any, given: Any, options: Any = None) -> Any:
            return self.allgather([list(output.view(self.size(), -1).unbind())], [given.reshape(-1)], options)

        all_gather_single = _allgather_base  # as torch calls it since 2.13

        def reduce_scatter(self, outputs: list[Any], inputs: list[list[Any]], options: Any = None) -> Any:
            (output,), (given,) = outputs, inputs

            def carry(ours: list[Any], theirs: list[Any]) -> Any:
                work = [self._gloo.allreduce([it]) for it in ours]
                for it in work:
                    it.wait()
                theirs[0].copy_(ours[self.rank()].view_as(theirs[0]))
                if options is not None and options.reduceOp == core.ReduceOp.AVG:
                    theirs[0].div_(self.size())
                return work[-1]

            return self._collective("ReduceScatter_Sum_f32_RING_LL", given, [output], carry)

        def _reduce_scatter_base(self, output: Any, given: Any, options: Any = None) -> Any:
            return self.reduce_scatter([output], [list(given.view(self.size(), -1).unbind())], options)

        reduce_scatter_single = _reduce_scatter_base

        def barrier(self, opts: Any = None) -> Any:
            self._gloo.barrier().wait()
            one = torch.zeros(1, device=f"cuda:{library.current_device()}")
            self.allreduce([one]).wait()
            library.synchronize_device(library.current_device())
            return Work(library.current_device(), 0, [one])

    ProcessGroupNCCL.Options = Options  # type: ignore[attr-defined]
    return ProcessGroupNCCL
