"""Which setting keeps trials from being isolated, on made-up machines."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from hotlap.machine.doctor import advice
from hotlap.machine.isolation import container, isolation_advice, kernel_settings
from hotlap.records import Machine, Protection

NO_LANDLOCK = "fence: the kernel has no Landlock, or it is switched off"
NO_LAYER = "namespaces: no layer can cover it: Invalid argument (/) EINVAL"


def machine(mode: Literal["namespaces", "fence", "none"], kind: str = "", *reasons: str, **settings: str) -> Machine:
    known = tuple((name.replace("__", "."), it) for name, it in settings.items())
    return Machine(container=kind, kernel_settings=known, protection=Protection(mode=mode, reasons=reasons))


@pytest.mark.parametrize(
    ("found", "text", "remedy"),
    [
        (
            machine("fence", kernel__apparmor_restrict_unprivileged_userns="1"),
            "AppArmor denies programs without a profile",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            machine("fence", kernel__unprivileged_userns_clone="0"),
            "Only root may make user namespaces",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        (machine("fence", user__max_user_namespaces="0"), "allows no user namespaces", "user_namespaces=15000"),
        (machine("fence", user__max_mnt_namespaces="0"), "allows no mnt namespaces", "user.max_mnt_namespaces=15000"),
        (machine("fence", kernel__osrelease="5.10.0-33"), "lets only root mount overlayfs", "newer kernel"),
        (machine("fence", "docker", cap_sys_admin="0"), "This container (docker) does not", "seccomp=unconfined"),
        (machine("fence", "docker", cap_sys_admin="1"), "This container (docker) does not", "denies pivot_root"),
        (machine("fence", "podman"), "This container (podman) does not", "label=disable"),
        (machine("fence", "kubernetes"), "This container (kubernetes) does not", "seccompProfile: {type: Unconfined}"),
        (machine("fence", "lxc"), "This container (lxc) does not permit", "user namespaces"),
        (machine("fence", "docker", NO_LAYER, cap_sys_admin="1"), "cannot be stored on the container's own", "TMPDIR"),
        (machine("none", "", NO_LANDLOCK, kernel__osrelease="5.4.0"), "has no Landlock", "newer kernel"),
        (
            machine("none", "", NO_LANDLOCK, kernel__osrelease="6.1.0", lsm="lockdown,capability,yama"),
            "Landlock is not among the kernel's active security modules (lockdown,capability,yama).",
            "lsm=landlock,lockdown,capability,yama",
        ),
    ],
)
def test_what_to_change(found: Machine, text: str, remedy: str) -> None:
    about = [it for it in isolation_advice(found) if text in it.text]
    assert found.protection is not None
    assert [it.level for it in about] == [{"fence": "note", "none": "warning"}[found.protection.mode]]
    assert remedy in about[0].remedy
    assert about[0] in advice(found)


@pytest.mark.parametrize(
    "found",
    [
        Machine(kernel_settings=(("kernel.unprivileged_userns_clone", "0"),)),  # nothing was tried
        machine("namespaces", "docker", user__max_user_namespaces="0"),
        machine("fence"),
        machine("fence", kernel__apparmor_restrict_unprivileged_userns="0", kernel__unprivileged_userns_clone="1"),
        machine("fence", kernel__apparmor_restrict_unprivileged_userns="1", cap_sys_admin="1"),
        machine("fence", "", NO_LAYER),
        machine("none", "", NO_LANDLOCK, kernel__osrelease="6.1.0", lsm="landlock,yama"),
        machine("none", "", NO_LANDLOCK),
        machine("fence", kernel__osrelease="a kernel of mine"),
    ],
)
def test_what_is_not_a_cause_is_not_named(found: Machine) -> None:
    assert list(isolation_advice(found)) == []


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_settings_are_read(tmp_path: Path) -> None:
    put(tmp_path, "proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
    put(tmp_path, "proc/sys/user/max_user_namespaces", "0\n")
    put(tmp_path, "proc/sys/kernel/osrelease", "6.8.0-41-generic\n")
    put(tmp_path, "sys/kernel/security/lsm", "lockdown,yama")
    put(tmp_path, "proc/self/status", "Name:\tpython\nCapEff:\t00000000a80425fb\n")
    assert dict(kernel_settings(tmp_path)) == {
        "kernel.apparmor_restrict_unprivileged_userns": "1",
        "user.max_user_namespaces": "0",
        "kernel.osrelease": "6.8.0-41-generic",
        "lsm": "lockdown,yama",
        "cap_sys_admin": "0",
    }
    put(tmp_path, "proc/self/status", "CapEff:\t000001ffffffffff\n")
    assert dict(kernel_settings(tmp_path))["cap_sys_admin"] == "1"


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    assert list(kernel_settings(tmp_path)) == []
    assert container(tmp_path, {}) == ""
    (tmp_path / "proc/sys/user/max_user_namespaces").mkdir(parents=True)
    put(tmp_path, "sys/kernel/security/lsm", "x" * 70_000)
    put(tmp_path, "proc/self/status", "CapEff:\tmany\n")
    assert list(kernel_settings(tmp_path)) == []


@pytest.mark.parametrize(
    ("files", "environment", "kind"),
    [
        ([".dockerenv"], {}, "docker"),
        (["run/.containerenv"], {}, "podman"),
        ([".dockerenv"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ([], {"container": "lxc"}, "lxc"),
        ([], {"container": "no name\n"}, ""),
        ([], {}, ""),
    ],
)
def test_containers(tmp_path: Path, files: list[str], environment: dict[str, str], kind: str) -> None:
    for name in files:
        put(tmp_path, name, "")
    assert container(tmp_path, environment) == kind


def test_a_container_that_systemd_detects(tmp_path: Path) -> None:
    put(tmp_path, "run/systemd/container", "systemd-nspawn\n")
    assert container(tmp_path, {}) == "systemd-nspawn"
