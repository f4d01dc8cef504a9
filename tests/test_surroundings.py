"""The tests have the same environment wherever they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import dispositions
import surroundings

HOME = Path("/home/tests")


def test_the_testers_variables_have_no_effect() -> None:
    steers = (
        *("PYTHONUNBUFFERED", "PYTHONHASHSEED", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "TERM", "CI", "HOTLAP_PLAN"),
        *("XDG_CACHE_HOME", "GIT_DIR", "GIT_INDEX_FILE", "OMP_NUM_THREADS", "RANK", "WORLD_SIZE", "TORCH_LOGS"),
        *("HF_HOME", "WANDB_MODE", "MLFLOW_TRACKING_URI", "http_proxy", "HTTPS_PROXY", "TRITON_CACHE_DIR"),
    )
    kept = {"PATH": "/bin", "TMPDIR": "/t", "TZ": "Asia/Kathmandu", "LC_ALL": "C", "HOTLAP_NEEDS_BROWSER": "1"}
    given = dict.fromkeys(steers, "1") | kept | {"HOME": "/home/ada"}
    found = surroundings.neutral(given, HOME)
    path = f"{Path(sys.executable).parent}{os.pathsep}/bin"
    assert found == kept | {"PATH": path, "HOME": str(HOME), "GIT_CONFIG_NOSYSTEM": "1"}


def test_folders_of_modules_are_found_from_everywhere() -> None:
    found = surroundings.neutral({"PYTHONPATH": f"src{os.pathsep}{os.pathsep}/packages"}, HOME)
    assert found["PYTHONPATH"] == os.pathsep.join((str(Path("src").absolute()), "/packages"))


def test_paths_of_sockets_stay_short() -> None:
    assert surroundings.temporary("/scratch") == "/scratch"
    assert surroundings.temporary("/scratch/" + "deep/" * 20) == "/tmp"


SAYS_WHAT_IT_FINDS = """
import signal
print(sorted(it.name for it in signal.valid_signals() if signal.getsignal(it) is signal.SIG_IGN))
print(sorted(it.name for it in signal.pthread_sigmask(signal.SIG_BLOCK, ())))
"""
AS_THE_TESTS_START_IT = f"""
import subprocess, sys
import dispositions
dispositions.make_usual_here()
subprocess.run([sys.executable, "-c", {SAYS_WHAT_IT_FINDS!r}], check=True)
"""


def start_like_nohup_in_the_background() -> None:
    dispositions.ignoring_interrupts()
    for number in (signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])


def test_children_find_no_signal_ignored_or_blocked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_THE_TESTS_START_IT],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        preexec_fn=start_like_nohup_in_the_background,
        check=True,
    )
    assert done.stdout == "['SIGPIPE', 'SIGXFSZ']\n[]\n"


def test_this_process_was_made_so() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert "PYTHONHASHSEED" not in os.environ
