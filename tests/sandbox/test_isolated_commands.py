"""Real commands in isolation: what they can do, and how they end."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hotlap.errors import HotlapError
from hotlap.records import Isolation, NetworkMode, ProtectionMode
from hotlap.trial.isolating import Isolator
from hotlap.trial.output import read_tail
from hotlap.trial.process import OwnedProcess

Shell = Callable[..., tuple[int | None, str]]
MODES: tuple[ProtectionMode, ...] = ("namespaces", "fence")
PYTHON = shlex.quote(sys.executable)


def require(isolator: Isolator) -> None:
    """Skip where this machine's kernel does not offer the mode, and give the reason."""
    try:
        _ = isolator.protection
    except HotlapError as error:
        pytest.skip(str(error))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "kept").write_text("mine")
    return tmp_path / "project"


@pytest.fixture
def shell(project: Path, tmp_path: Path) -> Shell:
    """Runs a line of sh in isolation, and returns its exit status and what it wrote."""

    def run(
        line: str,
        mode: ProtectionMode = "namespaces",
        network: NetworkMode = "open",
        environment: Mapping[str, str] = os.environ,
    ) -> tuple[int | None, str]:
        isolator = Isolator(Isolation(mode=mode, network=network), tmp_path / "runs", environment)
        require(isolator)
        shared = tmp_path / "shared"
        shared.mkdir(exist_ok=True)
        return isolator.run_briefly(["sh", "-c", line], str(project), environment, shared)

    return run


@pytest.mark.parametrize("mode", MODES)
def test_exit_codes_and_signals_come_through(shell: Shell, mode: ProtectionMode) -> None:
    assert shell("exit 3", mode) == (3, "")
    assert shell("kill -SEGV $$", mode)[0] == -signal.SIGSEGV
    assert shell("kill -KILL $$", mode)[0] == -signal.SIGKILL
    assert shell("true", mode)[0] == 0


def test_writes_are_read_back_and_thrown_away(shell: Shell, project: Path) -> None:
    status, said = shell("echo more >> kept; rm -f other; mkdir new; mv kept new/; cat new/kept; ls")
    assert (status, said) == (0, "minemore\nnew\n")
    assert [it.name for it in project.iterdir()] == ["kept"]
    assert (project / "kept").read_text() == "mine"


def test_the_fence_denies(shell: Shell, project: Path) -> None:
    status, said = shell("echo more >> kept", "fence")
    assert status != 0
    assert "Permission denied" in said
    assert (project / "kept").read_text() == "mine"


@pytest.mark.parametrize("line", ["umount /", "umount -l /", "mount -t tmpfs x .", "mount -o remount,rw /"])
def test_the_layers_cannot_be_taken_away(shell: Shell, line: str) -> None:
    status, _ = shell(line)
    assert status != 0


def test_processes_see_their_own_numbers(shell: Shell) -> None:
    status, said = shell("echo $$; ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' '")
    assert status == 0
    number, count, first = said.splitlines()
    assert int(number) == 2
    assert int(count) < 10
    assert "launcher" in first


def test_a_session_of_its_own(shell: Shell) -> None:
    """A script that signals its own group must not hit the launcher."""
    status, said = shell(f"{PYTHON} -c 'import os; print(os.getsid(0) == os.getppid(), os.getpgrp() > 0)'")
    assert (status, said.strip()) == (0, "True True")


@pytest.mark.parametrize("mode", MODES)
def test_nothing_outlives_the_command(shell: Shell, mode: ProtectionMode, tmp_path: Path) -> None:
    """Not a daemon either, with an empty environment and a session of its own."""
    beat = f"while :; do date +%s%N > {tmp_path}/shared/beat; sleep 0.02; done"
    status, _ = shell(f"env -i setsid sh -c '(setsid sh -c \"{beat}\" &) ; sleep 0.3' & sleep 0.5", mode)
    assert status == 0
    last = (tmp_path / "shared" / "beat").read_text()
    threading.Event().wait(0.3)
    assert (tmp_path / "shared" / "beat").read_text() == last


def test_without_a_network_only_loopback_is_left(shell: Shell) -> None:
    code = (
        "import socket; server = socket.create_server(('127.0.0.1', 0));"
        "socket.create_connection(server.getsockname()); print('loopback');"
        "print(sorted(name for _, name in socket.if_nameindex()))"
    )
    status, said = shell(f'{PYTHON} -c "{code}"', "namespaces", "none")
    assert status == 0
    assert said.splitlines() == ["loopback", "['lo']"]


def test_shared_memory_is_gone_with_the_run(shell: Shell) -> None:
    name = f"hotlap-test-{os.getpid()}"
    mine = Path("/dev/shm", f"{name}-mine")
    mine.write_text("mine")
    try:
        status, said = shell(f"cat {mine}; echo theirs > {mine}; echo new > /dev/shm/{name}; cat /dev/shm/{name}")
        assert (status, said) == (0, "minenew\n")
        assert mine.read_text() == "mine"
        assert not Path("/dev/shm", name).exists()
    finally:
        mine.unlink()


def test_sockets_of_other_programs_answer(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "service"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            with server.accept()[0] as caller:
                caller.sendall(b"hello")

        thread = threading.Thread(target=answer)
        thread.start()
        code = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{path}'); print(s.recv(9))"
        assert shell(f'{PYTHON} -c "{code}"') == (0, "b'hello'\n")
        thread.join()


def test_sockets_that_other_programs_remove_meanwhile_refuse_no_trial(shell: Shell, tmp_path: Path) -> None:
    """Many at a time, and always others, so that some go away after they are listed and some after they are opened."""
    stopped = threading.Event()

    def come_and_go(number: int) -> None:
        while not stopped.is_set():
            paths = [tmp_path / f"{number}-{it}" for it in range(50)]
            servers = [socket.socket(socket.AF_UNIX) for _ in paths]
            for server, path in zip(servers, paths, strict=True):
                server.bind(str(path))
            for server, path in zip(servers, paths, strict=True):
                path.unlink()
                server.close()

    assert shell("true") == (0, "")
    threads = [threading.Thread(target=come_and_go, args=(it,)) for it in range(2)]
    try:
        for it in threads:
            it.start()
        assert [shell("true") for _ in range(8)] == [(0, "")] * 8
    except pytest.skip.Exception as refused:
        pytest.fail(f"It was isolated before. {refused}")
    finally:
        stopped.set()
        for it in threads:
            it.join()


def test_caches_are_shared_and_new_ones_stay_with_the_study(shell: Shell, tmp_path: Path) -> None:
    old, new = tmp_path / "old-cache", tmp_path / "new-cache"
    old.mkdir()
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(old), "TRITON_CACHE_DIR": str(new)}
    shell(f"echo a > {old}/kernel; echo b > {new}/kernel", environment=environment)
    assert (old / "kernel").read_text() == "a\n"
    assert not new.exists()
    assert shell(f"cat {new}/kernel", environment=environment) == (0, "b\n")


def test_linked_files_stay_together(shell: Shell, project: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only an administrator's layers keep the names of a linked file together")
    (project / "linked").hardlink_to(project / "kept")
    status, said = shell("echo more >> kept; cat linked; stat -c %h kept")
    assert (status, said) == (0, "minemore\n2\n")


def test_a_script_is_not_started_where_it_cannot_be_isolated(shell: Shell, project: Path, tmp_path: Path) -> None:
    isolator = Isolator(Isolation(mode="namespaces"), tmp_path / "runs", {})
    require(isolator)
    run_directory = tmp_path / "runs" / "0001"
    run_directory.mkdir(parents=True)
    process = OwnedProcess()
    order = isolator.order(["touch", str(run_directory / "ran")], str(project), run_directory, process.folder)
    order.shared, order.shared_at = [str(project / "kept")], [str(project)]  # a file cannot lie over a folder
    process.start(
        order.command, directory=str(project), environment=os.environ, output=tmp_path / "output", order=order
    )
    assert process.wait(30)
    assert process.kill() == 125
    assert "could not be isolated: Not a directory" in read_tail(tmp_path / "output")
    assert not (run_directory / "ran").exists()
