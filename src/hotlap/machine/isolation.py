"""The kernel's and a container's settings that decide how trials can be isolated, and which of them to change.

Sources: user_namespaces(7) and namespaces(7) (``/proc/sys/user``), capabilities(7), proc_pid_status(5); Linux,
"Overlay Filesystem" (mounted by ordinary users since 5.11) and "Landlock: unprivileged access control" (since 5.13,
boot parameter ``lsm=``); Ubuntu, "Restricted unprivileged user namespaces" (23.10); Debian's kernel, patch "add sysctl
to disallow unprivileged CLONE_NEWUSER"; Docker, "Seccomp security profiles" and the profile
``default.json`` (``mount`` and ``unshare`` need CAP_SYS_ADMIN, ``pivot_root`` is never allowed), "AppArmor security
profiles" (``docker-default`` denies ``mount``); Podman's ``seccomp.json`` (allows all three) and podman-run(1);
Kubernetes, "Configure a Security Context" and "Pod Security Standards".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from hotlap.files import read_bounded
from hotlap.machine.advised import Advice, Level
from hotlap.records import Machine

_LONGEST_BYTES = 65536
_SETTINGS = (
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.unprivileged_userns_clone",
    "user.max_user_namespaces",
    "user.max_mnt_namespaces",
    "user.max_pid_namespaces",
    "kernel.osrelease",
)
_SECURITY_MODULES = "lsm"
_MAY_MOUNT = "cap_sys_admin"
_CAP_SYS_ADMIN = 21
_FIRST_OVERLAY, _FIRST_LANDLOCK = (5, 11), (5, 13)
_TRUSTED = "That weakens the separation of the container from its host: do it only for programs that you trust."
_CONTAINERS: Mapping[str, str] = {
    "docker": (
        "`docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined`: no system call is "
        "filtered, and AppArmor permits mounts. `--cap-add SYS_ADMIN` alone is not enough, since Docker's seccomp "
        f"profile denies pivot_root even then. {_TRUSTED}"
    ),
    "podman": (
        "Podman's own seccomp profile permits them, so SELinux or the host does not. `podman run --security-opt "
        f"label=disable` turns SELinux's separation of the container off. {_TRUSTED}"
    ),
    "kubernetes": (
        "In the container's securityContext: `seccompProfile: {type: Unconfined}` and `appArmorProfile: {type: "
        "Unconfined}`: no system call is filtered, and AppArmor permits mounts. Of the Pod Security Standards only "
        f"`privileged` allows that. {_TRUSTED}"
    ),
}
_ANY_CONTAINER = "Start the container so that user namespaces and mounts in them are allowed."


def kernel_settings(root: Path) -> Iterator[tuple[str, str]]:
    """The settings that could be read, by the names that sysctl(8) has for them; ``lsm`` are the active security
    modules, ``cap_sys_admin`` is 1 where this process may mount. ``root`` is where ``proc`` and ``sys`` lie."""
    for name in _SETTINGS:
        text = _read(root / "proc/sys" / name.replace(".", "/")).strip()
        if text:
            yield name, text[:80]
    modules = _read(root / "sys/kernel/security/lsm").strip()
    if modules:
        yield _SECURITY_MODULES, modules[:400]
    effective = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", _read(root / "proc/self/status"), re.MULTILINE)
    if effective is not None:
        yield _MAY_MOUNT, str(int(effective[1], 16) >> _CAP_SYS_ADMIN & 1)


def container(root: Path, environment: Mapping[str, str]) -> str:
    """The runtime of this container: ``docker``, ``podman``, ``kubernetes`` or another name; empty for none."""
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    for kind, marks in (("podman", "run/.containerenv"), ("docker", ".dockerenv")):
        if (root / marks).is_file():
            return kind
    named = _read(root / "run/systemd/container").strip() or environment.get("container", "")
    return named if re.fullmatch(r"[\w.-]{1,40}", named) else ""


def isolation_advice(machine: Machine) -> Iterator[Advice]:
    """The settings that keep this machine from isolating trials in a stronger way."""
    protection = machine.protection
    if protection is None or protection.mode == "namespaces":
        return
    level: Level = "note" if protection.mode == "fence" else "warning"
    settings = dict(machine.kernel_settings)
    yield from _about_namespaces(machine, settings, level)
    if protection.mode == "none" and any("no Landlock" in it for it in protection.reasons):
        yield from _about_landlock(settings, level)


def _about_namespaces(machine: Machine, settings: Mapping[str, str], level: Level) -> Iterator[Advice]:
    assert machine.protection is not None
    no_layer = any("no layer can cover" in it for it in machine.protection.reasons)
    if machine.container and no_layer:
        yield Advice(
            level,
            "The layers of a trial cannot be stored on the container's own file system.",
            "Work in a volume or a bind mount (docker run -v), or set TMPDIR to one, or to a tmpfs with enough space.",
        )
    elif machine.container:
        yield Advice(
            level,
            f"This container ({machine.container}) does not permit the system calls or mounts that namespaces need.",
            _CONTAINERS.get(machine.container, _ANY_CONTAINER),
        )
    if settings.get(_MAY_MOUNT) == "1":
        return  # the settings below do not matter to a process that may mount
    if settings.get("kernel.apparmor_restrict_unprivileged_userns") == "1":
        yield Advice(
            level,
            "AppArmor denies programs without a profile all rights in a user namespace "
            "(kernel.apparmor_restrict_unprivileged_userns=1), which isolating trials by namespaces needs.",
            "As root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 (for all programs, until the next "
            "boot), or give the Python that runs hotlap an AppArmor profile with the rule `userns,`.",
        )
    if settings.get("kernel.unprivileged_userns_clone") == "0":
        yield Advice(
            level,
            "Only root may make user namespaces (kernel.unprivileged_userns_clone=0), which isolating trials by "
            "namespaces needs.",
            "As root: sysctl -w kernel.unprivileged_userns_clone=1 (for all programs, until the next boot).",
        )
    for kind in ("user", "mnt", "pid"):
        if settings.get(f"user.max_{kind}_namespaces") == "0":
            yield Advice(
                level,
                f"The kernel allows no {kind} namespaces (user.max_{kind}_namespaces=0), which isolating trials needs.",
                f"As root: sysctl -w user.max_{kind}_namespaces=15000 (for all programs, until the next boot).",
            )
    release = settings.get("kernel.osrelease", "")
    if (0, 0) < _version(release) < _FIRST_OVERLAY:
        yield Advice(
            level,
            f"Linux {release} lets only root mount overlayfs, with which trials are isolated; from 5.11 on all may.",
            "Run a newer kernel, or hotlap as root.",
        )


def _about_landlock(settings: Mapping[str, str], level: Level) -> Iterator[Advice]:
    release, modules = settings.get("kernel.osrelease", ""), settings.get(_SECURITY_MODULES, "")
    if (0, 0) < _version(release) < _FIRST_LANDLOCK:
        yield Advice(level, f"Linux {release} has no Landlock; it came with 5.13.", "Run a newer kernel.")
    elif modules and "landlock" not in modules.split(","):
        yield Advice(
            level,
            f"Landlock is not among the kernel's active security modules ({modules}).",
            f"Boot with lsm=landlock,{modules} where the kernel was built with CONFIG_SECURITY_LANDLOCK.",
        )


def _version(release: str) -> tuple[int, int]:
    """The first two numbers of ``6.8.0-41-generic``; zeros where there are none."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _read(path: Path) -> str:
    """A small file's text; empty where it is missing, not a file or too large."""
    try:
        return read_bounded(path, _LONGEST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
