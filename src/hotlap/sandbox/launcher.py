"""Starts one command in isolation, waits for it, and ends all processes that it left: `python -I -S launcher.py ORDER
FD`.

ORDER is a file with an :class:`hotlap.sandbox.order.Order`, FD the end of a pipe that closes when the order's owner
ends, however it ends. The launcher stays outside of the isolation and is never frozen: it outlives the command's
processes and exits with the command's exit status.

With a pid namespace the kernel ends all of its processes together with the first, which ends with the launcher. Without
one, two processes adopt orphans: the launcher and its child, the keeper, which started the command. When one of them is
killed, the other ends all that is left. Where the owner is gone, the keeper ends it before the launcher does: at no
moment is the launcher the only one that could.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # -I leaves the path to the standard library alone
    sys.path.insert(0, __file__.rsplit("/", 3)[0])

import errno
import os
import select
import time

from hotlap.sandbox import kernel
from hotlap.sandbox.order import FENCE, LEFT_RUNNING, NAMESPACES, SETUP_FAILED, Order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from hotlap.sandbox.layers import Ground

_READ_BYTES = 4096
_LOOK_MILLISECONDS = 20
_REAP_MILLISECONDS = 500
_GRACE_SECONDS = 0.25
_GRACE_POLL_SECONDS = 0.005
_KEEPER_SECONDS = 10.0


def main(order_path: str, control: int) -> NoReturn:
    """Carry out an order and exit as its command did."""
    with open(order_path, "rb") as file:
        order = Order.decoded(file.read())
    os.set_inheritable(control, False)
    reader, writer = os.pipe()
    second = _start(order, reader, writer, control)
    os.close(writer)
    said = _wait(second, reader, control)
    if said is not None and (said.left_running or _others_stay()):
        os.close(os.open(f"{order_path}{LEFT_RUNNING}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.close(reader)
    if said is None and not order.pid_namespace:
        _let_keeper_end(second)
    _end_all()
    if said is None:
        _remove_owned(order)
        os._exit(1)
    _exit_as(said.status)


def _start(order: Order, reader: int, writer: int, control: int) -> int:
    """Start the process that starts the command; returns its number."""
    as_root = kernel.may_administrate()
    ground = None
    try:
        if order.mode == NAMESPACES:
            from hotlap.sandbox import layers  # which the other modes need not wait for

            ground = layers.survey(order, as_root=as_root)
            if not as_root:
                kernel.become_root_of_own_namespace()
            if order.pid_namespace:
                kernel.unshare(kernel.CLONE_NEWPID)
        if not order.pid_namespace:
            kernel.adopt_orphans()
        second = os.fork()
    except OSError as error:
        _refuse(error)
    if second:
        return second
    os.close(reader)
    try:
        if not order.pid_namespace:
            kernel.adopt_orphans()
            _keep(order, _command(order, ground, as_root=as_root, writer=writer), writer, control)
        kernel.end_with_parent(kernel.SIGKILL)
        if _hung_up(writer):  # the owner ended before the kernel was asked to end us with it
            os._exit(1)
        _isolate(order, ground, as_root=as_root)
    except OSError as error:
        _refuse(error)
    _keep(order, _command(order, None, as_root=as_root, writer=writer, isolated=True), writer, control)


def _isolate(order: Order, ground: Ground | None, *, as_root: bool) -> None:
    if order.network == "none":
        if order.mode != NAMESPACES and not as_root:
            kernel.become_root_of_own_namespace()
        kernel.unshare(kernel.CLONE_NEWNET)
        kernel.start_loopback()
    if ground is not None:
        from hotlap.sandbox import layers

        kernel.unshare(kernel.CLONE_NEWNS)
        layers.lay_over(order, ground, as_root=as_root)
        if order.pid_namespace:
            kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    elif order.mode == FENCE:
        from hotlap.sandbox import landlock

        landlock.forbid_writing(order.writable)
    kernel.drop_harmful_capabilities()


def _command(order: Order, ground: Ground | None, *, as_root: bool, writer: int, isolated: bool = False) -> int:
    """Start the command's process, which ends with this one; returns its number."""
    parent = os.getpid()
    command = os.fork()
    if command:
        return command
    os.close(writer)
    try:
        if not isolated:
            _isolate(order, ground, as_root=as_root)
        kernel.end_with_parent(kernel.SIGKILL)
    except OSError as error:
        _refuse(error)
    if os.getppid() != parent:  # before the request reached the kernel
        os._exit(1)
    _become_command(order)


def _keep(order: Order, command: int, writer: int, control: int) -> NoReturn:
    """Reap children, report the command's status to the launcher, and end all that is left, also when the launcher is
    gone.

    In a pid namespace this is the first process: when it ends, the kernel ends all others.
    """
    watch, handle = select.poll(), _process_handle(command)
    watch.register(writer, 0)
    if handle is not None:
        watch.register(handle, select.POLLIN)
    while True:
        status = _buried(command)
        if status is not None:
            _send(writer, f"{status} {int(_others_stay())}")
            break
        ready = watch.poll(_LOOK_MILLISECONDS if handle is None else _REAP_MILLISECONDS)
        if any(descriptor == writer for descriptor, _ in ready):
            break
    if not order.pid_namespace:
        _end_all()
        if _hung_up(writer) and _hung_up(control):
            _remove_owned(order)
    os._exit(0)


def _send(pipe: int, text: str) -> None:
    try:
        os.write(pipe, text.encode("ascii"))
    except BrokenPipeError:  # the launcher is gone
        return


def _buried(command: int) -> int | None:
    """Reap all children that have ended; the command's wait status when it is among them."""
    ended = None
    while True:
        try:
            gone, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if gone == 0:
            return ended
        if gone == command:
            ended = status


def _hung_up(pipe: int) -> bool:
    """Whether the other end of a pipe is closed in every process."""
    watch = select.poll()
    watch.register(pipe, 0)
    return bool(watch.poll(0))


def _remove_owned(order: Order) -> None:
    from hotlap.sandbox import removal  # needed only where the owner was killed

    for folder in order.owned:
        removal.remove(folder)


def _others_stay() -> bool:
    """Whether processes are left a moment after the command ended; its own helper processes end with it."""
    until = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(_GRACE_POLL_SECONDS)
        except ChildProcessError:
            return False
    return True


def _become_command(order: Order) -> NoReturn:
    kernel.heed_signals()
    try:
        os.setsid()
        os.chdir(order.directory)
        os.execvpe(order.command[0], list(order.command), os.environ)
    except OSError as error:
        _refuse(error)


class _End:
    """How the command ended: its wait status, and whether processes of its own were left then."""

    def __init__(self, status: int, left_running: bool = False) -> None:
        self.status = status
        self.left_running = left_running


def _wait(second: int, reader: int, control: int) -> _End | None:
    """The end of the command; None when the order's owner is gone."""
    watch = select.poll()
    handle = _process_handle(second)
    for descriptor in (reader, control, handle):
        if descriptor is not None:
            watch.register(descriptor, select.POLLIN | select.POLLHUP)
    said = b""
    while True:
        ready = {descriptor for descriptor, _ in watch.poll(_LOOK_MILLISECONDS if handle is None else None)}
        if control in ready and not os.read(control, _READ_BYTES):
            return None
        if reader in ready:
            received = os.read(reader, _READ_BYTES)
            said += received
            if not received:
                watch.unregister(reader)
        if handle is None or handle in ready:
            gone, status = os.waitpid(second, os.WNOHANG)
            if gone:
                said += _rest(reader)
                return _end_of(said.decode("ascii")) if said else _End(status)


def _let_keeper_end(keeper: int) -> None:
    """Give the keeper, which sees its pipe hang up, time to end the command's processes.

    If it were killed first, nobody would be left to end them when this process is killed in the next moment, and a
    frozen one would stay for good.
    """
    until = time.monotonic() + _KEEPER_SECONDS
    while time.monotonic() < until:
        try:
            if os.waitpid(keeper, os.WNOHANG) != (0, 0):
                return
        except ChildProcessError:
            return
        time.sleep(_GRACE_POLL_SECONDS)


def _end_of(text: str) -> _End:
    status, left_running = text.split()
    return _End(int(status), left_running == "1")


def _process_handle(number: int) -> int | None:
    """A descriptor that is ready when the process has ended; None on kernels before 5.3."""
    try:
        return os.pidfd_open(number)
    except OSError:
        return None


def _rest(reader: int) -> bytes:
    os.set_blocking(reader, False)
    try:
        return os.read(reader, _READ_BYTES)
    except BlockingIOError:
        return b""


def _end_all() -> None:
    """End all that is left: in a pid namespace its first process, else every child, since orphans become ours.

    None is missed: while any is left, at least one child of ours is found, if only as a zombie.
    """
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
            for number in _children():
                os.kill(number, kernel.SIGKILL)
            os.waitpid(-1, 0)
        except ProcessLookupError:
            continue
        except ChildProcessError:
            return


def _children() -> list[int]:
    own = os.getpid()
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and _parent_of(name) == own:
            found.append(int(name))
    return found


def _parent_of(number: str) -> int:
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def _exit_as(status: int) -> NoReturn:
    """Exit as the command did: with its code, or by its signal (without a core file of our own)."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        os._exit(code)
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    kernel.heed_signals(-code)
    os.kill(os.getpid(), -code)
    os._exit(128 - code)


def _refuse(error: OSError) -> NoReturn:
    """Print why the command was not started; the controller reads that from the output."""
    where = f" ({error.filename})" if error.filename else ""
    name = errno.errorcode.get(error.errno or 0, "")
    os.write(2, f"hotlap: the script could not be isolated: {error.strerror}{where} {name}\n".encode())
    os._exit(SETUP_FAILED)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
