"""Placement of threads on machines of every kind, told by fake trees of /proc and /sys."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.ops.cpu.threads import Placement, Processors, place, placement, read_processors

SIBLINGS = ("core_cpus_list", "thread_siblings_list")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def write_cores(root: Path, cores: Iterable[str], name: str = SIBLINGS[0]) -> None:
    """`cores` are lists of siblings such as `0,4`."""
    for siblings in cores:
        for cpu in siblings.split(","):
            write(root / f"sys/devices/system/cpu/cpu{cpu}/topology/{name}", siblings)


def write_nodes(root: Path, *lists: str) -> None:
    for number, cpus in enumerate(lists):
        write(root / f"sys/devices/system/node/node{number}/cpulist", cpus)


def single_cores(count: int) -> tuple[tuple[int, ...], ...]:
    return tuple((cpu,) for cpu in range(count))


def two_nodes(first: int, second: int) -> Processors:
    nodes = frozenset(range(first)), frozenset(range(first, first + second))
    return Processors(single_cores(first + second), nodes)


@pytest.mark.parametrize("name", SIBLINGS)
def test_a_core_counts_once_and_by_its_lowest_processor(tmp_path: Path, name: str) -> None:
    write_cores(tmp_path, ("0,4", "1,5", "2,6", "3,7"), name)
    found = read_processors(tmp_path, range(8))
    assert found.cores == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert place(found, None) == Placement(4, ())


def test_only_allowed_processors_count(tmp_path: Path) -> None:
    write_cores(tmp_path, ("0,4", "1,5", "2,6", "3,7"))
    found = read_processors(tmp_path, {4, 1, 5, 7})
    assert found.cores == ((1, 5), (4,), (7,))
    assert place(found, None).threads == 3


def test_without_topology_every_processor_is_a_core(tmp_path: Path) -> None:
    found = read_processors(tmp_path, {0, 1, 2})
    assert found == Processors(single_cores(3), (), None)


def test_without_affinity_and_sys_the_count_of_processors_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert place(read_processors(tmp_path), None) == Placement(3, ())


@pytest.mark.parametrize(
    ("text", "quota"),
    [("max 100000", None), ("150000 100000", 1.5), ("50000 100000", 0.5), ("x y", None), ("", None), ("100 0", None)],
)
def test_quota_of_version_2(tmp_path: Path, text: str, quota: float | None) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/")
    write(tmp_path / "sys/fs/cgroup/cpu.max", text)
    assert read_processors(tmp_path, {0}).quota == quota


def test_the_tightest_group_above_decides(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/a/b")
    write(tmp_path / "sys/fs/cgroup/a/b/cpu.max", "max 100000")
    write(tmp_path / "sys/fs/cgroup/a/cpu.max", "300000 100000")
    write(tmp_path / "sys/fs/cgroup/cpu.max", "800000 100000")
    assert read_processors(tmp_path, {0}).quota == 3


def test_a_group_outside_the_tree_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/../../..")
    write(tmp_path / "sys/cpu.max", "100000 100000")
    write(tmp_path / "sys/fs/cgroup/cpu.max", "200000 100000")
    assert read_processors(tmp_path, {0}).quota == 2


@pytest.mark.parametrize("folder", ["cpu,cpuacct", "cpu"])
@pytest.mark.parametrize("where", ["docker/1", ""])  # as the host sees it, and as the container does
def test_quota_of_version_1(tmp_path: Path, folder: str, where: str) -> None:
    write(tmp_path / "proc/self/cgroup", "5:cpuset:/\n4:cpu,cpuacct:/docker/1\n0::/")
    group = tmp_path / "sys/fs/cgroup" / folder / where
    write(group / "cpu.cfs_quota_us", "250000")
    write(group / "cpu.cfs_period_us", "100000")
    assert read_processors(tmp_path, {0}).quota == 2.5


def test_no_quota_of_version_1(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "4:cpu,cpuacct:/")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    write(tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert read_processors(tmp_path, {0}).quota is None


@pytest.mark.parametrize(("quota", "threads"), [(0.5, 1), (1.5, 1), (2.0, 2), (3.9, 3), (100.0, 8)])
def test_a_quota_rounds_down_to_threads(quota: float, threads: int) -> None:
    assert place(Processors(single_cores(8), (), quota), None) == Placement(threads, ())


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 2), (3, 3), (4, 3), (8, 7)])
def test_cores_are_reserved_only_where_there_are_enough(cores: int, threads: int) -> None:
    assert place(Processors(single_cores(cores)), None, reserve=1).threads == threads


def test_what_a_quota_leaves_is_what_is_reserved_from() -> None:
    assert place(Processors(single_cores(64), (), 4.0), None, reserve=1).threads == 3


def test_something_is_left_however_much_is_reserved() -> None:
    assert place(Processors(single_cores(4)), None, reserve=9).threads == 1


def test_a_number_that_was_asked_for_is_taken() -> None:
    assert place(Processors(single_cores(2), (), 1.0), 5, reserve=1) == Placement(5, ())


@pytest.mark.parametrize("threads", [0, -1])
def test_no_threads_are_refused(threads: int) -> None:
    with pytest.raises(ValueError, match=f"{threads} threads"):
        place(Processors(single_cores(2)), threads)


def test_nodes_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write_nodes(tmp_path, *(str(cpu) for cpu in range(11)))
    write(tmp_path / "sys/devices/system/node/node11/cpulist", "")  # memory without processors
    write(tmp_path / "sys/devices/system/node/online", "0-11")
    assert read_processors(tmp_path, {0}).nodes == tuple(frozenset({cpu}) for cpu in range(11))


@pytest.mark.parametrize(
    ("text", "node"), [("0-2,8", {0, 1, 2, 8}), ("5", {5}), ("a-b", None), ("0-999999999999", None), ("-3", None)]
)
def test_lists_of_processors(tmp_path: Path, text: str, node: set[int] | None) -> None:
    write_nodes(tmp_path, text)
    assert read_processors(tmp_path, {0}).nodes == (() if node is None else (frozenset(node),))


def test_one_node_leaves_threads_to_the_system() -> None:
    processors = Processors(single_cores(4), (frozenset(range(4)),))
    assert place(processors, None) == Placement(4, ())


def test_an_affinity_within_one_node_is_one_node() -> None:
    processors = Processors(single_cores(4), (frozenset(range(4)), frozenset(range(4, 8))))
    assert place(processors, 3) == Placement(3, ())


def test_threads_that_fit_stay_on_the_node_with_most_cores() -> None:
    assert place(two_nodes(4, 6), 5) == Placement(5, (4, 5, 6, 7, 8))
    assert place(two_nodes(4, 4), 2) == Placement(2, (0, 1))


def test_threads_that_do_not_fit_are_spread_evenly() -> None:
    assert place(two_nodes(4, 4), 6) == Placement(6, (0, 1, 2, 4, 5, 6))
    assert place(two_nodes(2, 6), 7) == Placement(7, (0, 1, 2, 3, 4, 5, 6))


def test_nodes_of_a_machine_with_siblings(tmp_path: Path) -> None:
    write_cores(tmp_path, ("0,4", "1,5", "2,6", "3,7"))
    write_nodes(tmp_path, "0-1,4-5", "2-3,6-7")
    processors = read_processors(tmp_path, range(8))
    assert place(processors, None) == Placement(4, (0, 1, 2, 3))
    assert place(processors, 2) == Placement(2, (0, 1))
    assert place(processors, 6) == Placement(6, (0, 1, 4, 2, 3, 6))
    assert place(processors, 9) == Placement(9, ())


def test_a_quota_that_one_node_meets_uses_one_node() -> None:
    processors = two_nodes(4, 4)
    assert place(Processors(processors.cores, processors.nodes, 3.5), None) == Placement(3, (0, 1, 2))


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 2),
    st.none() | st.integers(1, 60),
    st.none() | st.floats(0.1, 80),
    st.integers(0, 3),
)
def test_every_machine_gets_a_processor_of_its_own_for_each_thread(
    cores_of_nodes: list[int], siblings: int, threads: int | None, quota: float | None, reserve: int
) -> None:
    cores, nodes = [], []
    for count in cores_of_nodes:
        first = len(cores) * siblings
        cores.extend(tuple(range(cpu, cpu + siblings)) for cpu in range(first, first + count * siblings, siblings))
        nodes.append(frozenset(range(first, first + count * siblings)))
    found = place(Processors(tuple(cores), tuple(nodes), quota), threads, reserve=reserve)
    assert found.threads >= 1
    assert threads is None or found.threads == threads
    if threads is None:
        assert found.threads <= max(1, min(len(cores), quota or len(cores)))
    if len(nodes) == 1 or found.threads > len(cores) * siblings:
        assert found.cpus == ()
        return
    assert len(found.cpus) == len(set(found.cpus)) == found.threads
    used = [len(node.intersection(found.cpus)) for node in nodes]
    assert sum(used) == found.threads
    if found.threads <= max(cores_of_nodes):
        assert sorted(used)[:-1] == [0] * (len(nodes) - 1)
    if found.threads <= len(cores):
        assert len({cpu // siblings for cpu in found.cpus}) == found.threads


def test_this_machine() -> None:
    found = placement(None)
    assert 1 <= found.threads <= (os.cpu_count() or 1)
    assert placement(2).threads == 2
