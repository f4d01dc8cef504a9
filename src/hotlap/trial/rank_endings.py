"""Why one of several ranks ended a run: the cause on its own rank, not what others saw of it. Pure functions."""

from __future__ import annotations

import re
import signal

from hotlap.trial.output import TRACEBACK, raised_error

_OF_PEERS = re.compile(
    r"Connection (?:closed|reset) by peer|caused by a remote worker|remote process exited or there was a network error"
    r"|NCCL watchdog thread terminated|Broken pipe"
)
"""What gloo and NCCL raise on the ranks that wait for one that is gone."""
_ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?^\s*rank\s*: (\d{1,6}).*?^\s*exitcode\s*: (-?\d{1,9})",
    re.MULTILINE | re.DOTALL,
)
"""How torchrun's summary names the first rank that failed (torch.distributed.elastic, ``ChildFailedError``)."""
_LONGEST_ERROR = 500
_RANK_LINE = re.compile(r"^\[rank(\d{1,6})\]: ?(.*)$")


def cause_on_ranks(output: str) -> str:
    """The cause in one sentence; empty where no rank of several is known to have ended the others."""
    own = [(rank, error) for rank, error in _raised_by_rank(output) if not _OF_PEERS.search(error)]
    if own:
        rank, error = own[-1]
        return f"On rank {rank}: {error}"
    if not _OF_PEERS.search(raised_error(output, second_hand=False)):
        return ""
    root = _ROOT_CAUSE.search(output)
    if root is None:
        return ""
    rank, code = int(root[1]), int(root[2])
    if code < 0:
        return f"Rank {rank} was ended by {_signal(-code)} while the others waited for it."
    return (
        f"A rank left while rank {rank} still exchanged data with it: its own end, or a different number of steps on "
        "each rank."
    )


def _raised_by_rank(output: str) -> list[tuple[int, str]]:
    """The rank and the first line of each error that a rank raised, where lines carry ranks."""
    found: list[tuple[int, str]] = []
    inside: set[int] = set()
    for line in output.split("\n"):
        match = _RANK_LINE.match(line)
        if match is None:
            continue
        rank, text = int(match[1]), match[2]
        if TRACEBACK in text:
            inside.add(rank)
        elif rank in inside and text.strip() and not text.startswith((" ", "\t")):
            inside.discard(rank)
            found.append((rank, text.strip()[:_LONGEST_ERROR]))
    return found


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
