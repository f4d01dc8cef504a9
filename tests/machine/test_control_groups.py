"""Limits of control groups, read from trees of files as the kernel and the usual container engines lay them out."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.machine.control_groups import Limits, limits, parse_cpu_max, parse_memberships, parse_memory, parse_quota


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


VERSION_2 = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def test_no_files_at_all_set_no_limit(tmp_path: Path) -> None:
    assert limits(tmp_path) == Limits()


def test_container_with_its_own_namespace(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": "22 1 0:20 / /proc rw - proc proc rw\n" + VERSION_2,
            "sys/fs/cgroup/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/memory.max": "4294967296\n",
        },
    )
    assert limits(tmp_path) == Limits(cores=1.5, memory_bytes=4 << 30)


def test_the_tightest_group_on_the_way_up_decides(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job/step\n",
            "proc/self/mountinfo": VERSION_2,
            "sys/fs/cgroup/user.slice/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/user.slice/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/job/cpu.max": "300000 100000\n",
            "sys/fs/cgroup/user.slice/job/memory.max": "1000000\n",
            "sys/fs/cgroup/user.slice/job/step/cpu.max": "max 100000\n",
            "sys/fs/cgroup/user.slice/job/step/memory.max": "2000000\n",
            "sys/fs/cgroup/system.slice/cpu.max": "1000 100000\n",
        },
    )
    assert limits(tmp_path) == Limits(cores=3.0, memory_bytes=1_000_000)


def test_version_1_mount_that_shows_only_the_containers_part(tmp_path: Path) -> None:
    group = "/docker/0123abcd"
    write(
        tmp_path,
        {
            "proc/self/cgroup": f"4:memory:{group}\n3:cpu,cpuacct:{group}\n1:name=systemd:{group}\n",
            "proc/self/mountinfo": (
                f"31 30 0:27 {group} /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
                f"32 30 0:28 {group} /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
            ),
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "50000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "8589934592\n",
        },
    )
    assert limits(tmp_path) == Limits(cores=5.0, memory_bytes=8 << 30)


def test_version_1_without_limits(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "2:memory:/\n1:cpu:/\n",
            "proc/self/mountinfo": (
                "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            ),
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert limits(tmp_path) == Limits()


def test_a_group_above_the_namespace_does_not_lead_out_of_the_tree(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "cpu.max": "1000 100000\n",
            "sys/cpu.max": "1000 100000\n",
            "proc/self/cgroup": "0::/../../..\n",
            "proc/self/mountinfo": VERSION_2,
            "sys/fs/cgroup/cpu.max": "200000 100000\n",
        },
    )
    assert limits(tmp_path).cores == 2.0


@given(quota=st.integers(1, 10**12), period=st.integers(1, 10**9))
def test_a_quota_is_its_share_of_the_period(quota: int, period: int) -> None:
    assert parse_cpu_max(f"{quota} {period}\n") == pytest.approx(quota / period)
    assert parse_quota(f"{quota}\n", f"{period}\n") == parse_cpu_max(f"{quota} {period}")


@pytest.mark.parametrize(
    "text", ["max 100000\n", "max\n", "", "-1 100000", "0 100000", "5 0", "\u0661 5", "1e5 100000"]
)
def test_what_is_not_a_quota_sets_no_limit(text: str) -> None:
    assert parse_cpu_max(text) is None


def test_the_period_may_be_left_out() -> None:
    assert parse_cpu_max("50000") == 0.5


@given(st.integers(1, (1 << 60) - 1))
def test_memory_limits_are_read_as_they_are(limit: int) -> None:
    assert parse_memory(f"{limit}\n") == limit


@pytest.mark.parametrize("text", ["max\n", "", "-5", "0", "9223372036854771712", "9" * 5000])
def test_what_is_not_a_memory_limit_sets_none(text: str) -> None:
    assert parse_memory(text) is None


@given(st.text())
def test_arbitrary_text_is_never_an_error(text: str) -> None:
    quota, memory = parse_cpu_max(text), parse_memory(text)
    assert quota is None or quota > 0
    assert memory is None or memory > 0
    assert all(group.is_absolute() for group in parse_memberships(text).values())


@given(memberships=st.text(), mounts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"))))
def test_arbitrary_kernel_files_are_never_an_error(
    tmp_path_factory: pytest.TempPathFactory, memberships: str, mounts: list[str]
) -> None:
    root = tmp_path_factory.mktemp("root")
    lines = [f"30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw{mount}" for mount in mounts]
    encoded = {"cgroup": f"0::/{memberships}", "mountinfo": "\n".join(lines)}
    (root / "proc/self").mkdir(parents=True)
    for name, text in encoded.items():
        (root / "proc/self" / name).write_bytes(text.encode("utf-8", errors="replace"))
    assert limits(root) == Limits()
