"""The line that a watched call came from, found cheaply enough for every call of every step."""

from __future__ import annotations

import sysconfig
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Literal, NamedTuple, TypeAlias

from hotlap.records import CallSite
from hotlap.runtime.call_sites import MAXIMUM_DEPTH, is_own, is_users

_PATHS = sysconfig.get_paths()
_STANDARD_LIBRARY = (_PATHS["stdlib"], _PATHS["platstdlib"], "<frozen")
_INSTALLED = (_PATHS["purelib"], _PATHS["platlib"])
# What hotlap does between two steps has this file on its stack; nothing of the user's is ever called through it.
_BETWEEN_STEPS = str(Path(__file__).parent.parent / "session.py")

# Where torch updates parameters, as paths within torch; the last two only live in the same folder.
_UPDATING = ("optim/", "nn/utils/clip_grad", "amp/grad_scaler", "distributed/fsdp/sharded_grad_scaler")
_NOT_UPDATING = ("optim/lr_scheduler", "optim/swa_utils")

Origin: TypeAlias = Literal["user", "own", "between steps", "standard library", "update", "library"]


class Caller(NamedTuple):
    """Who called: the user's innermost line (None where a framework runs the show), whether that line did so by itself
    or through nothing but the standard library, and whether it was torch that called, updating parameters.

    ``instruction`` is that line's code and the offset of the calling instruction in it; ``within`` is the innermost
    function of a library in between, by its module and name."""

    site: CallSite | None
    directly: bool
    updating: bool
    instruction: tuple[CodeType, int] | None = None
    within: str = ""


class Callers:
    """Finds callers, and caches what it learnt about files and lines."""

    def __init__(self, torch: ModuleType) -> None:
        root = f"{Path(str(torch.__file__)).parent}/"
        self._updating = tuple(root + path for path in _UPDATING)
        self._not_updating = tuple(root + path for path in _NOT_UPDATING)
        self._origins: dict[str, Origin] = {}
        # By identity of the code, which is therefore kept, and position in it; lines are slow to work out.
        self._sites: dict[tuple[int, int], tuple[CodeType, CallSite]] = {}
        self._direct: dict[tuple[int, int], Caller] = {}  # those whose very frame is the user's: most are

    def of(self, frame: FrameType) -> Caller | None:
        """The caller whose innermost frame this is; None when it is hotlap itself."""
        key = (id(frame.f_code), frame.f_lasti)
        direct = self._direct.get(key)
        if direct is not None:
            return direct
        caller = self._walk(frame)
        if caller is not None and caller.instruction is not None and caller.instruction[0] is frame.f_code:
            self._direct[key] = caller
        return caller

    def _walk(self, frame: FrameType) -> Caller | None:
        directly, updating, at_the_call, within = True, False, True, ""
        walked: FrameType | None = frame
        for _ in range(MAXIMUM_DEPTH):
            if walked is None:
                break
            origin = self.origin(walked.f_code.co_filename)
            if origin == "user":
                instruction = (walked.f_code, walked.f_lasti)
                return Caller(self.site(*instruction), directly, updating, instruction, within)
            if origin == "between steps":
                return None
            if origin == "own":
                if at_the_call and not passes_on(walked.f_code):
                    return None
            else:
                at_the_call = False
                directly = directly and origin == "standard library"
                updating = updating or origin == "update"
                if origin == "library" and not within:
                    within = f"{walked.f_globals.get('__name__', '')}.{walked.f_code.co_qualname}"
            walked = walked.f_back
        return Caller(None, False, updating)

    def origin(self, file: str) -> Origin:
        """Whose file a code object's is."""
        origin = self._origins.get(file)
        if origin is None:
            origin = self._origins[file] = self._classify(file)
        return origin

    def _classify(self, file: str) -> Origin:
        if file == _BETWEEN_STEPS:
            return "between steps"
        if is_own(file):
            return "own"
        if is_users(file):
            return "user"
        if file.startswith(self._updating) and not file.startswith(self._not_updating):
            return "update"
        if file.startswith(_STANDARD_LIBRARY) and not file.startswith(_INSTALLED):
            return "standard library"
        return "library"

    def site(self, code: CodeType, offset: int) -> CallSite:
        """The line of an instruction."""
        key = (id(code), offset)
        known = self._sites.get(key)
        if known is None:
            # One entry for each instruction of two bytes.
            line = next(islice(code.co_positions(), max(0, offset) // 2, None), (None,))[0]
            site = CallSite(role="call", file=code.co_filename, line=line or code.co_firstlineno, function=code.co_name)
            known = self._sites[key] = (code, site)
        return known[1]


def passes_on(code: CodeType) -> bool:
    """Whether one of our own functions is a wrapper, which passes the user's call on: such functions are made
    within another. All others call on their own account."""
    return "<locals>" in code.co_qualname and not code.co_name.startswith("<")
