"""What is mounted, and where layers go, for made-up texts and folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotlap.sandbox.mounts import Mount, points_of_root, points_of_user, read_mounts

TEXT = rb"""
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
21 20 0:5 / /proc rw,nosuid,nodev,noexec - proc proc rw
22 20 0:6 / /dev rw,nosuid - devtmpfs udev rw
23 22 0:7 / /dev/shm rw,nosuid,nodev - tmpfs tmpfs rw
24 20 8:2 / /data\040of\040ours rw,nosuid,noatime - xfs /dev/sdb1 rw
25 20 0:9 / /readonly ro,relatime - squashfs /dev/loop0 ro
26 20 0:10 / /rosuper rw,relatime - ext4 /dev/sdc1 ro
27 20 0:11 / /mnt rw - tmpfs hidden rw
28 27 0:12 / /mnt/inner rw - tmpfs below rw
29 27 0:13 / /mnt rw - tmpfs shown rw
30 20 0:14 / /net rw - autofs systemd-1 rw
""".strip()


def test_mounts_are_those_that_paths_reach() -> None:
    mounts = {it.point: it for it in read_mounts(TEXT)}
    assert mounts["/mnt"].number == 29  # which was mounted over the other
    assert "/mnt/inner" not in mounts
    assert mounts["/data of ours"].flags != 0
    assert {point for point, it in mounts.items() if not it.writable} == {"/readonly", "/rosuper"}
    assert {point for point, it in mounts.items() if it.of_the_kernel} == {"/proc", "/dev", "/dev/shm", "/net"}
    assert next(iter(mounts)) == "/"


def test_roots_layers_cover_every_mount_with_files(tmp_path: Path) -> None:
    mounts = [mount("/"), mount(str(tmp_path)), mount("/proc", kind="proc"), mount("/usr", writable=False)]
    assert points_of_root(mounts) == ["/", str(tmp_path)]


def test_a_mounted_file_has_no_layer(tmp_path: Path) -> None:
    (tmp_path / "hosts").touch()
    assert points_of_root([mount(str(tmp_path / "hosts"))]) == []


def test_the_real_machine_can_be_read() -> None:
    mounts = read_mounts(Path("/proc/self/mountinfo").read_bytes())
    assert mounts[0].point == "/"
    assert len({it.point for it in mounts}) == len(mounts)


# -- an ordinary user's layers ----------------------------------------------------------------


def mount(point: str, *, kind: str = "ext4", writable: bool = True) -> Mount:
    return Mount(number=1, parent=0, point=point, kind=kind, writable=writable, flags=0)


def test_the_folder_that_is_worked_in_has_a_layer_however_many_others_could(tmp_path: Path) -> None:
    """Something is mounted in a folder of the user's own, so that each of its many folders needs a layer."""
    for number in range(300):
        (tmp_path / f"{number:03}").mkdir()
    mounts = [mount("/", writable=False), mount(str(tmp_path)), mount(str(tmp_path / "000"))]
    worked_in = [str(tmp_path / f"{number:03}") for number in range(100, 200)]
    points = points_of_user(mounts, worked_in)
    assert set(worked_in) <= set(points) and len(points) <= 200


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A disk whose folders belong to others, but for those below a folder named ``me``."""
    disk = tmp_path / "disk"
    (disk / "home" / "me" / "project" / "ckpt").mkdir(parents=True)
    (disk / "scratch" / "a" / "b" / "c" / "d" / "e" / "me").mkdir(parents=True)
    (disk / "team").mkdir()
    real_stat, real_access = os.stat, os.access

    def stat(path: str, **keywords: bool) -> os.stat_result:
        status = real_stat(path, **keywords)
        owner = 1000 if "/me" in str(path) else 0
        return os.stat_result((*status[:4], owner, *status[5:]))

    def access(path: str, mode: int) -> bool:
        return "/me" in str(path) or str(path).endswith("/team") or (mode != os.W_OK and real_access(path, mode))

    monkeypatch.setattr("hotlap.sandbox.mounts.os.geteuid", lambda: 1000)
    monkeypatch.setattr("hotlap.sandbox.mounts.os.stat", stat)
    monkeypatch.setattr("hotlap.sandbox.mounts.os.access", access)
    return disk


def test_a_users_layers_begin_below_what_belongs_to_others(foreign: Path) -> None:
    points = points_of_user([mount(str(foreign))], [])
    assert points == [str(foreign / "team"), str(foreign / "home" / "me")]


def test_paths_of_interest_are_found_however_deep_they_lie(foreign: Path) -> None:
    deep = foreign / "scratch" / "a" / "b" / "c" / "d" / "e" / "me"
    assert str(deep) not in points_of_user([mount(str(foreign))], [])
    assert str(deep) in points_of_user([mount("/"), mount(str(foreign))], [str(deep / "run")])


def test_no_layer_covers_a_folder_with_a_mount_in_it(foreign: Path) -> None:
    inner = foreign / "home" / "me" / "project" / "ckpt"
    points = points_of_user([mount(str(foreign)), mount(str(inner))], [])
    assert str(inner) in points
    assert not {str(foreign / "home" / "me"), str(foreign / "home" / "me" / "project")} & set(points)
