"""Run the command line as if this were another system: ``python elsewhere.py PLATFORM ARGUMENTS...``.

What Python does not have on that system is taken away before hotlap is imported: modules, functions of ``os``, signals
and kinds of sockets. torch is taken away too. Paths and the file system stay those of this machine.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import multiprocessing.connection  # these check at import what the system has
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import ModuleType

import psutil
import rich._windows
import rich.console

ABSENT_MODULES = {
    "linux": {"torch"},
    "darwin": {"torch"},
    "win32": {"torch", "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"},
}
ONLY_LINUX = {
    os: (
        "memfd_create", "pidfd_open", "sched_getaffinity", "sched_setaffinity", "setns", "unshare", "eventfd",
        "listxattr", "getxattr", "setxattr", "removexattr", "copy_file_range", "splice", "posix_fadvise", "O_PATH",
    ),
    signal: ("pidfd_send_signal",),
}  # fmt: skip
NOT_ON_WINDOWS = {
    os: (
        "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "WNOHANG",
        "chown", "fchown", "fork", "forkpty", "geteuid", "getegid", "getgid", "getgroups", "getloadavg", "getpgid",
        "getpriority", "getsid", "getuid", "killpg", "lchown", "mkfifo", "nice", "openpty", "posix_spawn",
        "register_at_fork", "sched_yield", "sendfile", "setpgid", "setsid", "statvfs", "fstatvfs", "sync", "sysconf",
        "uname", "waitid",
    ),
    signal: (
        "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGUSR1",
        "SIGUSR2", "alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait",
    ),
    socket: ("AF_UNIX", "SCM_RIGHTS", "socketpair"),
}  # fmt: skip
DECIDED = (ctypes, multiprocessing.connection, psutil, rich._windows, rich.console, subprocess, tempfile)


class _Absent(importlib.abc.MetaPathFinder):
    """Find nothing, and report the modules that the system lacks as missing."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def become(platform: str) -> None:
    """Take away what ``platform`` (a value of ``sys.platform``) does not have."""
    absent = ABSENT_MODULES[platform]
    for name in absent:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Absent(absent))
    wanting = [] if platform == "linux" else [ONLY_LINUX, *([NOT_ON_WINDOWS] if platform == "win32" else [])]
    for group in wanting:
        for module, names in group.items():
            for name in names:
                if hasattr(module, name):
                    delattr(module, name)
    sys.platform = platform


if __name__ == "__main__":
    become(sys.argv[1])
    del sys.argv[1]
    sys.argv[0] = "hotlap"
    from hotlap.cli.main import main

    sys.exit(main())
