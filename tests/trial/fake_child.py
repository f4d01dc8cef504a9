"""A fake trainer: speaks the protocol in plain sockets, trains nothing, and fails on request.

Keeps a diary of monotonic times (which all processes share) in its run directory, so that a test can determine which
ran when.
"""

from __future__ import annotations

import argparse
import atexit
import json
import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TRAIN_SAMPLES = 4


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--step-seconds", type=float, default=0.001)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=TRAIN_SAMPLES)
    parser.add_argument("--fail-at", type=int, default=-1, help="the step, from 0, before which --fail happens")
    parser.add_argument("--fail", default="raise")
    parser.add_argument("--beat", action="store_true", help="a thread and a worker process write their times")
    parser.add_argument("--ranks", type=int, default=0, help="launch this many trainers")
    parser.add_argument("--deserter", action="store_true", help="leave a worker running in its own session")
    parser.add_argument("--deaf", action="store_true", help="ignore End")
    parser.add_argument("--alone", default="", help="run out of memory when another of this name is alive")
    parser.add_argument("--on-device", action="store_true", help="wait for permission before the first step")
    parser.add_argument("--retry-every", type=int, default=0, help="blocks, one of which has an allocator retry")
    parser.add_argument(
        "--refused", default="CUDA out of memory. Tried to allocate 2.00 GiB.", help="its out-of-memory message"
    )
    parser.add_argument("--print", default="")
    parser.add_argument("--allocate", type=int, default=0)
    return parser.parse_args()


def note(kind: str, **more: Any) -> None:
    line = json.dumps({"kind": kind, "at": time.monotonic(), "process": os.getpid(), **more})
    with (Path(os.environ["HOTLAP_RUN_DIRECTORY"]) / "diary").open("a") as diary:
        diary.write(line + "\n")


def beat(kind: str) -> None:
    while True:
        note(kind)
        time.sleep(0.002)


class Line:
    """The child's end of the channel."""

    def __init__(self) -> None:
        address = os.environ["HOTLAP_SOCKET"]
        if stat.S_ISSOCK(Path(address).stat().st_mode):
            self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.socket.connect(address)
        else:
            host, port, secret = Path(address).read_text().split()
            self.socket = socket.create_connection((host, int(port)))
            self.socket.sendall(secret.encode() + b"\n")
        self.incoming = self.socket.makefile("rb")
        self.reported = False

    def send(self, **message: Any) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def report(self, exit_code: int | None, **run: Any) -> None:
        if not self.reported:
            self.reported = True
            self.send(type="report", exit_code=exit_code, run=run)

    def receive(self) -> dict[str, Any]:
        line = self.incoming.readline()
        if not line:
            os._exit(1)
        message: dict[str, Any] = json.loads(line)
        return message


def fail(how: str, line: Line) -> None:
    sys.stdout.flush()
    match how:
        case "raise":
            raise ValueError("the planted error")
        case "device-memory":
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        case "host-memory":
            raise MemoryError
        case "survived-memory":
            print("CUDA out of memory, trying again with less", flush=True)
            raise ValueError("something else")
        case "exit":
            sys.exit(3)
        case "os-exit":
            os._exit(int(os.environ.get("FAKE_EXIT_CODE", "0")))
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segmentation-fault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            time.sleep(1000)
        case "input":
            input("Your name? ")
        case "nonsense":
            line.socket.sendall(b'{"type": "block-done", "block": "\xff"}\n')
            time.sleep(1000)
        case "close":
            line.socket.close()
            time.sleep(1000)


def train(chosen: argparse.Namespace) -> None:
    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    line: Line | None = None
    order: dict[str, Any] = {}
    done = lead_in = block_steps = blocks = 0
    began = 0.0
    hoard = b"x" * chosen.allocate
    counter = Path(os.environ["HOTLAP_RUN_DIRECTORY"], f"steps-done-{os.getpid()}")
    if chosen.on_device:
        waits = json.loads(Path(os.environ["HOTLAP_ASSIGNMENT"]).read_text()).get("waits_on_device", False)
        note("arrived", at=time.monotonic(), waits=waits)
        line = arrive() if waits else None
        note("went on", at=time.monotonic())
    for step in range(chosen.steps):
        if step == chosen.fail_at and rank == processes - 1:
            fail(chosen.fail, line or Line())
        time.sleep(chosen.step_seconds * (rank + 1))
        done += 1
        counter.write_bytes(done.to_bytes(8, sys.byteorder))
        if done == 1:
            line = line or Line()
            note("first step", at=time.monotonic())
            atexit.register(line.report, 0, steps={"samples": [len(hoard) and 1]})
            line.send(type="hello", process=os.getpid(), rank=rank, processes=processes)
        elif lead_in:
            lead_in -= 1
            if lead_in == 0:
                began, block_steps = time.monotonic(), 0
            continue
        else:
            block_steps += 1
            timed_out = order["seconds"] is not None and time.monotonic() - began >= order["seconds"]
            most = order["most_seconds"]
            at_last = most is not None and time.monotonic() - began >= most
            enough = at_last or (timed_out and block_steps >= order["minimum_steps"])
            if block_steps < order["steps"] and not enough:
                continue
            ended = time.monotonic()
            note("block", began=began, ended=ended, steps=block_steps)
            block = {"steps": block_steps, "samples": block_steps * chosen.samples, "wall_seconds": ended - began}
            blocks += 1
            block["allocator_retries"] = int(chosen.retry_every > 0 and blocks % chosen.retry_every == 0)
            line.send(type="block-done", block=block, steps_done=done)
        order = line.receive()
        note("order", order=order)
        if order["type"] == "end":
            if chosen.deaf:
                time.sleep(1000)
            line.report(None, device_peak_bytes=1000 + rank, notes=[f"rank {rank}", "all"])
            os._exit(0)
        lead_in, began, block_steps = order["lead_in"], time.monotonic(), 0


def arrive() -> Line:
    line = Line()
    line.send(type="arrived", process=os.getpid())
    line.receive()
    return line


def launch_ranks(count: int) -> int:
    command = [sys.executable, __file__, *sys.argv[1:]]
    command[command.index("--ranks") + 1] = "0"
    environments = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count)} for rank in range(count)]
    ranks = [subprocess.Popen(command, env=it, start_new_session=True) for it in environments]
    return max(it.wait() for it in ranks)


def misbehave_in_print(what: str) -> None:
    match what:
        case "garbage":
            sys.stdout.buffer.write(b"\xff\xfe caf\xe9 \x1b[31mred\x1b[0m\x07\n 10%\r 50%\r100%\n")
        case "flood":
            for _ in range(80):
                sys.stdout.buffer.write(b"0123456789abcdef" * 65536)
            sys.stdout.buffer.write(b"\nthe last words\n")
        case "hello":
            print("hello from the script")
    sys.stdout.flush()


def fail_unless_alone(name: str, refused: str) -> socket.socket:
    """Fail while another arm lives: it holds the abstract socket of this name, as arms share the network."""
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0hotlap-test-{name}")
    except OSError:
        raise RuntimeError(refused) from None
    return held


def main() -> int:
    chosen = options()
    note("environment", variables=dict(os.environ), arguments=sys.argv, directory=str(Path.cwd()))
    misbehave_in_print(chosen.print)
    if chosen.ranks:
        return launch_ranks(chosen.ranks)
    if chosen.alone:
        held = fail_unless_alone(chosen.alone, chosen.refused)  # noqa: F841 (until the process ends)
    if chosen.deserter:
        code = "import os, time; os.fork() and os._exit(0); time.sleep(1000)"
        subprocess.run([sys.executable, "-c", code], start_new_session=True, check=True)
    if chosen.beat:
        threading.Thread(target=beat, args=("thread",), daemon=True).start()
        multiprocessing.get_context("spawn").Process(target=beat, args=("worker",), daemon=True).start()
    train(chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
