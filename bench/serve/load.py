"""Open-loop load over HTTP: requests go out at Poisson times, whether or not earlier ones were answered.

A latency counts from the scheduled time of its request, so that the delay of a client or server that lags behind is
part of it (no coordinated omission). This is the server scenario of MLPerf Inference (Reddi et al., 2020).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

HOST = "127.0.0.1"
LONGEST_ANSWER_SECONDS = 60.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One request: ``latency_seconds`` from its scheduled time to the last byte of the answer, and ``late_seconds`` to
    the moment at which it was sent. ``failure`` is not empty where there was no answer, or not one of status 200."""

    number: int
    latency_seconds: float
    late_seconds: float
    outputs: Any = None
    failure: str = ""


def poisson_times(rate: float, seconds: float, seed: int) -> list[float]:
    """The seconds of all arrivals of a Poisson process within a time, from its start."""
    draw = random.Random(seed)
    times, now = [], draw.expovariate(rate)
    while now < seconds:
        times.append(now)
        now += draw.expovariate(rate)
    return times


def drive(
    port: int, requests: Sequence[dict[str, Any]], times: Sequence[float], *, keep_outputs: bool = False
) -> list[Answer]:
    """Send the requests in turn at these times, and wait for all answers."""
    bodies = [_message(json.dumps(it).encode()) for it in requests]
    # On a thread of its own, since the caller's may have an event loop that runs.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_driven(port, bodies, times, keep_outputs))).result()


def percentile(seconds: Sequence[float], share: float) -> float:
    """The smallest of these that at least a ``share`` of them do not exceed."""
    return sorted(seconds)[max(0, math.ceil(share * len(seconds)) - 1)]


async def _driven(port: int, bodies: Sequence[bytes], times: Sequence[float], keep_outputs: bool) -> list[Answer]:
    connections = _Connections(port)
    began = time.perf_counter() + 0.05

    async def one(number: int, scheduled: float) -> Answer:
        sent = math.nan
        try:
            async with asyncio.timeout(LONGEST_ANSWER_SECONDS):
                connection = await connections.take()
                sent = time.perf_counter()
                status, body = await connection.ask(bodies[number % len(bodies)])
            ended = time.perf_counter()
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            return Answer(
                number=number,
                latency_seconds=math.nan,
                late_seconds=sent - scheduled,
                failure=f"{type(error).__name__}: {error}",
            )
        connections.give_back(connection)
        return Answer(
            number=number,
            latency_seconds=ended - scheduled,
            late_seconds=sent - scheduled,
            outputs=json.loads(body) if keep_outputs and status == 200 else None,
            failure="" if status == 200 else f"status {status}: {body[:200].decode(errors='replace')}",
        )

    waiting = []
    for number, after in enumerate(times):
        scheduled = began + after
        pause = scheduled - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        waiting.append(asyncio.create_task(one(number, scheduled)))
    answers = list(await asyncio.gather(*waiting))
    await connections.close()
    return answers


class _Connections:
    """Open connections that no request is using."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[_Connection] = []
        self._all: list[_Connection] = []

    async def take(self) -> _Connection:
        if self._free:
            return self._free.pop()
        opened = _Connection(*await asyncio.open_connection(HOST, self._port))
        self._all.append(opened)
        return opened

    def give_back(self, connection: _Connection) -> None:
        self._free.append(connection)

    async def close(self) -> None:
        for it in self._all:
            await it.close()


class _Connection:
    """One connection of HTTP/1.1 that stays open between requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, message: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer. Raises OSError, EOFError or ValueError."""
        self._writer.write(message)
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        lengths = [it.partition(":")[2] for it in head[1:] if it.lower().startswith("content-length:")]
        if len(lengths) != 1:
            raise ValueError("an answer without its length")
        return status, await self._reader.readexactly(int(lengths[0]))

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def _message(body: bytes) -> bytes:
    head = (
        f"POST /predict HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
