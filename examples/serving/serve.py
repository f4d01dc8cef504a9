"""Serve a folder that ``hotlap export artefact`` wrote, with dynamic batching by LitServe, on this machine alone.

``python serve.py FOLDER`` answers ``POST /predict``: a JSON object with a list for each input of ``contract.json``
becomes one with a list for each output. ``GET /health`` answers 200 as soon as the model is loaded. Requests that wait
while the model computes are answered by one call. Needs ``pip install litserve`` and the folder's ``requirements.txt``;
hotlap need not be installed.
"""

import argparse
import os
import signal
from pathlib import Path

import litserve
from artefact import Artefact, BadRequest
from litserve.loops import BatchedLoop
from starlette.responses import JSONResponse


class WaitingLoop(BatchedLoop):
    """LitServe's loop, but it waits for the first request of a batch, and the time to wait for others begins with it.

    LitServe's own loop polls its queue all the time while there are no requests, on cores that the model needs.
    """

    def get_batch_requests(self, lit_api, request_queue, transport):
        first = self.get_request(request_queue, timeout=1.0)
        if first is None:
            return [], []
        return super().get_batch_requests(lit_api, _Ahead(first, request_queue), transport)


class _Ahead:
    """A queue with one more item at its front."""

    def __init__(self, first, rest):
        self._first = [first]
        self._rest = rest

    def get(self, timeout=None):
        return self._first.pop() if self._first else self._rest.get(timeout=timeout)

    def get_nowait(self):
        return self._first.pop() if self._first else self._rest.get_nowait()


class ArtefactAPI(litserve.LitAPI):
    """Answers the requests of a batch by as few calls of the model as their shapes allow."""

    def __init__(self, folder, threads, **options):
        super().__init__(loop=WaitingLoop(), **options)
        self._folder = folder
        self._threads = threads

    def setup(self, device):
        self._model = Artefact(self._folder, self._threads)

    def decode_request(self, request: dict):
        try:
            return self._model.arrays(request)
        except BadRequest as error:
            return error  # raised here it would fail the whole batch

    def batch(self, inputs):
        return inputs

    def predict(self, inputs):
        answers = iter(self._model.answers([it for it in inputs if not isinstance(it, BadRequest)]))
        return [it if isinstance(it, BadRequest) else next(answers) for it in inputs]

    def encode_response(self, output):
        if isinstance(output, BadRequest):
            return JSONResponse({"detail": str(output)}, status_code=422)
        return output


def end_with_children(number, frame):
    """End as for Ctrl-C: LitServe does not handle SIGTERM, and would leave its processes behind."""
    if os.getpid() == _MAIN:
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser(description="Serve a folder that `hotlap export artefact` wrote.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000, help="port on 127.0.0.1 (default: 8000)")
    parser.add_argument("--batch", type=int, default=8, help="answer at most this many requests together (default: 8)")
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="MS",
        help="wait this many milliseconds for further requests after the first (default: 0, only those that wait)",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=0, help="threads of the model (default: those of the study)")
    choices = parser.parse_args()
    if not (choices.folder / "contract.json").is_file():
        parser.error(f"{choices.folder} holds no contract.json: name a folder that `hotlap export artefact` wrote")
    signal.signal(signal.SIGTERM, end_with_children)
    api = ArtefactAPI(
        choices.folder.absolute(), choices.threads, max_batch_size=choices.batch, batch_timeout=choices.wait / 1000
    )
    server = litserve.LitServer(api, accelerator="cpu")
    server.run(host="127.0.0.1", port=choices.port, generate_client_file=False, log_level="warning")


_MAIN = os.getpid()

if __name__ == "__main__":
    main()
