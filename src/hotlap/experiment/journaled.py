"""Resume an interrupted study.

The search is a deterministic function of the executor's answers, so resuming means replaying: the search runs again
from its start, the journal answers the requests it contains, with the seconds they took, and later ones are measured.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import cycle

import msgspec

from hotlap.errors import ClusterError, HotlapError
from hotlap.records import (
    Assignment,
    CollectiveRates,
    CollectivesRequest,
    LaunchRequest,
    Machine,
    Record,
    Replicate,
    Run,
    Slot,
    TurnRequest,
)
from hotlap.redact import redacted_record, redacted_request, secrets_in_environment, secrets_of
from hotlap.study import Answer, CollectivesAnswer, Journal, LaunchAnswer, MachineAnswer, TurnAnswer
from hotlap.trial.executor import Executor

_MOST_HOSTS = 100
_ABSENT = (
    b',"one_launch":false',
    b',"python_named":false',
    b',"warm_up_steps":0',
    b',"block_turns":1',
    b',"parts":null',
    b',"towards":"above"',
    b',"compiles_all":false',
    b',"compiles_all":true',
    b',"loads_code":false',
    b',"loads_code":true',
    b',"after_steps":false',
)
"""Fields that requests did not have when the present format began, as JSON with their defaults (``,"name":null``): left
out of keys, which thus stay those of studies that were made before. Of ``compiles_all`` and ``loads_code`` both values
are: they change how a launch starts, and not what it is for."""


class JournaledExecutor:
    """An executor that replays a journal to its end, then measures and appends to it.

    ``spent_seconds`` is the sum of the seconds of all answers so far, replayed ones included, so that a resumed study
    derives the same from it. The seconds of an answer count from the answer before it, so that they include the time of
    the search itself. Without a journal it only counts. Answers are redacted on arrival, so that nothing derived from
    them contains a secret. ``hosts`` are those that any run connected to, and ``launches`` is how many were requested.
    """

    def __init__(
        self, inner: Executor, journal: Journal | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.spent_seconds = 0.0
        self.hosts: tuple[str, ...] = ()
        self.launches = 0
        self.replayed = 0
        self.measured = 0
        self._inner = inner
        self._journal = journal
        self._clock = clock
        self._mark = clock()
        self._asked: Counter[str] = Counter()
        self._secrets_in_environment = secrets_in_environment(os.environ)

    def machine(self) -> Machine:
        """Facts about this machine at the start of the study."""
        key, ordinal, known = self._look_up("machine", None)
        if isinstance(known, MachineAnswer):
            self._count(known)
            return known.answer
        machine = redacted_record(self._inner.machine(), self._secrets_in_environment)
        self._keep(MachineAnswer(key=key, ordinal=ordinal, elapsed_seconds=self._elapsed(), answer=machine))
        return machine

    def collectives(self, request: CollectivesRequest) -> CollectiveRates:
        """Collectives of this machine, or what the journal has of them. Where they cannot be measured the answer is
        journaled too: its ``error``."""
        key, ordinal, known = self._look_up("collectives", request)
        if isinstance(known, CollectivesAnswer):
            self._count(known)
            return known.answer
        try:
            rates = self._inner.collectives(request)
        except ClusterError:  # nothing was measured: the study resumes when nodes are back
            raise
        except HotlapError as error:
            rates = CollectiveRates(error=error.what)
        rates = redacted_record(rates, self._secrets_in_environment)
        self._keep(CollectivesAnswer(key=key, ordinal=ordinal, elapsed_seconds=self._elapsed(), answer=rates))
        return rates

    def launch(self, request: LaunchRequest) -> Run:
        """Run one child, or replay it from the journal."""
        self.launches += 1
        key, ordinal, known = self._look_up("launch", request)
        if isinstance(known, LaunchAnswer):
            self._count(known)
            return redacted_record(known.answer, self._secrets(request.assignment))
        asked = self._inner.submit(request, self._inner.slots()[0])
        try:
            run = redacted_record(asked.result(), self._secrets(request.assignment))
        finally:
            asked.cancel()
        self._keep(LaunchAnswer(key=key, ordinal=ordinal, elapsed_seconds=self._elapsed(), answer=run))
        return run

    def launch_together(self, requests: Sequence[LaunchRequest]) -> list[Run]:
        """Run launches that are not timed at the same time, or replay them; answers are in the order of requests."""
        self.launches += len(requests)
        looked_up = [self._look_up("launch", it) for it in requests]
        missing = [it for it, (_, _, known) in zip(requests, looked_up, strict=True) if known is None]
        fresh = iter(self._measured_together(missing) if missing else ())
        runs: list[Run] = []
        for request, (key, ordinal, known) in zip(requests, looked_up, strict=True):
            secrets = self._secrets(request.assignment)
            if isinstance(known, LaunchAnswer):
                self._count(known)
                runs.append(redacted_record(known.answer, secrets))
                continue
            runs.append(redacted_record(next(fresh), secrets))
            self._keep(LaunchAnswer(key=key, ordinal=ordinal, elapsed_seconds=self._elapsed(), answer=runs[-1]))
        return runs

    def _measured_together(self, requests: Sequence[LaunchRequest]) -> tuple[Run, ...]:
        asked = self._inner.submit_together(requests, self._inner.slots()[0])
        try:
            return asked.result()
        finally:
            asked.cancel()

    @property
    def slots(self) -> int:
        """How many replicates can be taken at the same time."""
        return len(self._inner.slots())

    def take_turns(self, requests: Sequence[TurnRequest]) -> list[Replicate]:
        """Take so many replicates, or replay them. They are spread over the slots; those of one slot start together.

        They are journaled and returned in the order of requests once all are complete: the order of arrival decides
        nothing, and a study interrupted in between resumes with the same answers.
        """
        self.launches += sum(1 if it.one_launch else len(it.arms) for it in requests)
        looked_up = [self._look_up("turns", it) for it in requests]
        missing: defaultdict[Slot, list[int]] = defaultdict(list)
        for position, ((_, _, known), slot) in enumerate(zip(looked_up, cycle(self._inner.slots()), strict=False)):
            if not isinstance(known, TurnAnswer):
                missing[slot].append(position)
        asked: list[Future[tuple[Replicate, ...]]] = []
        waits: dict[int, Callable[[], Replicate]] = {}
        try:
            for slot, positions in missing.items():
                asked.append(self._inner.submit_replicates([requests[it] for it in positions], slot))
                waits.update({it: partial(_one_of, asked[-1], place) for place, it in enumerate(positions)})
            return [
                self._answer(request, *known, waits.get(position))
                for position, (request, known) in enumerate(zip(requests, looked_up, strict=True))
            ]
        finally:
            for future in asked:
                future.cancel()

    def _answer(
        self, request: TurnRequest, key: str, ordinal: int, known: Answer | None, wait: Callable[[], Replicate] | None
    ) -> Replicate:
        secrets = self._secrets(*request.arms)
        if wait is None:
            assert isinstance(known, TurnAnswer)
            self._count(known)
            return redacted_record(known.answer, secrets)
        turns = redacted_record(wait(), secrets)
        self._keep(TurnAnswer(key=key, ordinal=ordinal, elapsed_seconds=self._elapsed(), answer=turns))
        return turns

    def _look_up(self, kind: str, request: Record | None) -> tuple[str, int, Answer | None]:
        key = request_key(kind, request)
        ordinal = self._asked[key]
        self._asked[key] += 1
        if self._journal is None:
            return key, ordinal, None
        known = self._journal.answers.get((key, ordinal))
        if known is None:  # before secrets were redacted, they were part of the key
            known = self._journal.answers.get((_key(kind, request), ordinal))
        return key, ordinal, known

    def _secrets(self, *assignments: Assignment) -> frozenset[str]:
        """The secrets to remove from a child's output."""
        workloads = {it.workload for it in assignments}
        return self._secrets_in_environment.union(*map(secrets_of, workloads))

    def _elapsed(self) -> float:
        return self._clock() - self._mark

    def _keep(self, answer: Answer) -> None:
        if self._journal:
            self._journal.append(answer)
        self.measured += 1
        self._add(answer)

    def _count(self, answer: Answer) -> None:
        self.replayed += 1
        self._add(answer)

    def _add(self, answer: Answer) -> None:
        self.spent_seconds += answer.elapsed_seconds
        hosts = {host for run in _runs_of(answer) for host in run.hosts}
        if not hosts.issubset(self.hosts):
            self.hosts = tuple(sorted(hosts.union(self.hosts))[:_MOST_HOSTS])
        self._mark = self._clock()


def _one_of(taken: Future[tuple[Replicate, ...]], position: int) -> Replicate:
    return taken.result()[position]


def _runs_of(answer: Answer) -> tuple[Run, ...]:
    match answer:
        case LaunchAnswer(answer=run):
            return (run,)
        case TurnAnswer(answer=turns):
            return turns.runs
    return ()


def request_key(kind: str, request: Record | None) -> str:
    """A key of sixteen hexadecimal digits, equal for equal requests on every machine and in every run.

    No secret among a script's arguments can be guessed from it.
    """
    return _key(kind, redacted_request(request))


def _key(kind: str, request: Record | None) -> str:
    text = msgspec.json.encode(request)
    for absent in _ABSENT:
        text = text.replace(absent, b"")
    return hashlib.sha256(kind.encode() + b"\0" + text).hexdigest()[:16]
