"""A file of packed matrices: what was written is read, and nothing else is ever trusted."""

import errno
import hashlib
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from quire.ops.cpu import packed_file
from quire.ops.cpu.layouts import MatrixForm
from quire.ops.cpu.packed_file import Bytes, PackedFile, PackedFileWriter, Untrusted, remove_unfinished

KEY = "key"
PLENTY = 1 << 30
PREAMBLE = struct.Struct("<8sIQQ32s")


def matrix(size: int, seed: int = 0) -> tuple[MatrixForm, Bytes]:
    data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    return MatrixForm(1, size, 1, size, ("Q8_0",)), data


def write_file(path: Path, *sizes: int) -> list[tuple[MatrixForm, Bytes]]:
    """A whole file with matrices `0`, `1` and so on."""
    writer = PackedFileWriter(path.parent, PLENTY)
    matrices = [matrix(size, seed) for seed, size in enumerate(sizes)]
    for number, (form, data) in enumerate(matrices):
        writer.append(str(number), form, data)
    writer.finish(path, KEY)
    return matrices


def rewrite_table(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    """A table that is signed as it should be and says something else."""
    content = path.read_bytes()
    magic, version, start, _, _ = PREAMBLE.unpack(content[: PREAMBLE.size])
    table = msgspec.msgpack.decode(content[start:])
    encoded = msgspec.msgpack.encode(change(table) or table)
    preamble = PREAMBLE.pack(magic, version, start, len(encoded), hashlib.sha256(encoded).digest())
    path.write_bytes(preamble + content[PREAMBLE.size : start] + encoded)


def test_matrices_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a"
    written = write_file(path, 1, 64, 5000, 0, 130)
    file = PackedFile(path, KEY)
    for number, (form, data) in enumerate(written):
        found = file.matrix(str(number), form)
        assert found is not None
        assert np.array_equal(found, data)
        assert found.ctypes.data % 64 == 0
    assert list(tmp_path.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_appended_is_given_back_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_file, "_SEGMENT", 1 << 16)  # so that one matrix is larger and others cross its end
    writer = PackedFileWriter(tmp_path, PLENTY)
    matrices = [matrix(size, seed) for seed, size in enumerate((100, 70_000, 60_000, 200_000, 1, 5000))]
    given = [writer.append(str(number), form, data) for number, (form, data) in enumerate(matrices)]
    addresses = [(data.ctypes.data, data) for _, data in matrices]
    writer.finish(tmp_path / "a", KEY)
    file = PackedFile(tmp_path / "a", KEY)
    for number, (mapped, (form, data)) in enumerate(zip(given, matrices, strict=True)):
        assert np.array_equal(mapped, data)
        assert mapped.ctypes.data % 64 == 0
        assert mapped.ctypes.data not in dict(addresses)
        found = file.matrix(str(number), form)
        assert found is not None
        assert np.array_equal(found, data)


def test_tensors_outlive_the_file_and_its_object(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ((form, data),) = write_file(path, 5000)
    found = PackedFile(path, KEY).matrix("0", form)
    path.unlink()
    assert found is not None
    assert np.array_equal(found, data)


def test_writing_to_a_matrix_does_not_reach_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    ((form, data),) = write_file(path, 5000)
    found = PackedFile(path, KEY).matrix("0", form)
    assert found is not None
    found.fill(7)
    again = PackedFile(path, KEY).matrix("0", form)
    assert again is not None
    assert np.array_equal(again, data)


@pytest.mark.parametrize(
    "other",
    [
        MatrixForm(2, 64, 1, 64, ("Q8_0",)),
        MatrixForm(1, 32, 1, 64, ("Q8_0",)),
        MatrixForm(1, 64, 2, 64, ("Q8_0",)),
        MatrixForm(1, 64, 1, 65, ("Q8_0",)),
        MatrixForm(1, 64, 1, 64, ("Q6_K",)),
        MatrixForm(1, 64, 1, 64, ("Q8_0", "Q8_0")),
    ],
)
def test_a_matrix_of_another_form_is_not_found(tmp_path: Path, other: MatrixForm) -> None:
    ((form, _),) = write_file(tmp_path / "a", 64)
    file = PackedFile(tmp_path / "a", KEY)
    assert file.matrix("0", form) is not None
    assert file.matrix("0", other) is None
    assert file.matrix("1", form) is None


def test_no_file_is_not_an_untrusted_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        PackedFile(tmp_path / "a", KEY)


def test_a_file_for_another_key(tmp_path: Path) -> None:
    write_file(tmp_path / "a", 64)
    with pytest.raises(Untrusted, match="something else"):
        PackedFile(tmp_path / "a", "other")


@pytest.mark.parametrize("keep", [0, 1, 30, 4095, 4096, 4200, -1])
def test_a_file_that_was_cut(tmp_path: Path, keep: int) -> None:
    write_file(tmp_path / "a", 5000)
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes()[:keep])
    with pytest.raises(Untrusted):
        PackedFile(tmp_path / "a", KEY)


def test_a_file_that_has_grown(tmp_path: Path) -> None:
    write_file(tmp_path / "a", 64)
    with (tmp_path / "a").open("ab") as file:
        file.write(b"x")
    with pytest.raises(Untrusted, match="as long"):
        PackedFile(tmp_path / "a", KEY)


@pytest.mark.parametrize(
    ("place", "reason"), [(0, "no file of"), (8, "version"), (12, "long"), (20, "long"), (28, "dam")]
)
def test_a_preamble_that_was_changed(tmp_path: Path, place: int, reason: str) -> None:
    write_file(tmp_path / "a", 64)
    content = bytearray((tmp_path / "a").read_bytes())
    content[place] ^= 1
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(Untrusted, match=reason):
        PackedFile(tmp_path / "a", KEY)


def test_a_table_that_was_changed(tmp_path: Path) -> None:
    write_file(tmp_path / "a", 64)
    content = bytearray((tmp_path / "a").read_bytes())
    content[-1] ^= 1
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(Untrusted, match="damaged"):
        PackedFile(tmp_path / "a", KEY)


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 64), (-64, 64), (4097, 64), (4096 + 64, 64), (1 << 62, 64), (4096, 1 << 62), (4096, -64)]
)
def test_a_table_that_points_elsewhere(tmp_path: Path, offset: int, size: int) -> None:
    write_file(tmp_path / "a", 64)

    def change(table: dict[str, object]) -> None:
        table["matrices"] = {"0": {"offset": offset, "form": msgspec.to_builtins(MatrixForm(1, 64, 1, size, ()))}}

    rewrite_table(tmp_path / "a", change)
    with pytest.raises(Untrusted, match="place"):
        PackedFile(tmp_path / "a", KEY)


def test_matrices_that_overlap(tmp_path: Path) -> None:
    write_file(tmp_path / "a", 128)

    def change(table: dict[str, object]) -> None:
        form = msgspec.to_builtins(MatrixForm(1, 64, 1, 65, ()))
        table["matrices"] = {"0": {"offset": 4096, "form": form}, "1": {"offset": 4096 + 64, "form": form}}

    rewrite_table(tmp_path / "a", change)
    with pytest.raises(Untrusted, match="place"):
        PackedFile(tmp_path / "a", KEY)


@pytest.mark.parametrize("content", [[], {"key": KEY}, {"key": KEY, "matrices": {"0": 3}}, {"key": 1, "matrices": {}}])
def test_a_table_that_is_none(tmp_path: Path, content: object) -> None:
    write_file(tmp_path / "a", 64)
    rewrite_table(tmp_path / "a", lambda table: content or [1])
    with pytest.raises(Untrusted, match="cannot be read"):
        PackedFile(tmp_path / "a", KEY)


def test_a_changed_table_is_what_these_tests_need(tmp_path: Path) -> None:
    ((form, _),) = write_file(tmp_path / "a", 64)
    rewrite_table(tmp_path / "a", lambda table: None)
    assert PackedFile(tmp_path / "a", KEY).matrix("0", form) is not None


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_to(tmp_path: Path, mode: int) -> None:
    write_file(tmp_path / "a", 64)
    (tmp_path / "a").chmod(mode)
    with pytest.raises(Untrusted, match="others"):
        PackedFile(tmp_path / "a", KEY)


def test_a_file_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a", 64)
    content = os.stat(tmp_path / "a")
    stranger = os.stat_result((*content[:4], 4321, *content[5:]))
    monkeypatch.setattr(os, "fstat", lambda descriptor: stranger)
    with pytest.raises(Untrusted, match="others"):
        PackedFile(tmp_path / "a", KEY)


def test_a_link_and_a_folder(tmp_path: Path) -> None:
    write_file(tmp_path / "a", 64)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(Untrusted):
            PackedFile(tmp_path / name, KEY)


def test_no_more_is_written_than_allowed(tmp_path: Path) -> None:
    writer = PackedFileWriter(tmp_path, 4096 + 128)
    form, data = matrix(64)
    first = writer.append("0", form, data)
    writer.append("1", form, data)
    with pytest.raises(OSError, match="half"):
        writer.append("2", form, data)
    writer.abandon()
    assert not list(tmp_path.iterdir())
    assert np.array_equal(first, data)


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = PackedFileWriter(tmp_path, PLENTY)

    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        writer.append("0", *matrix(64))
    writer.abandon()


def test_writes_that_are_cut_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: whole(descriptor, data[:99], offset))
    ((form, data),) = write_file(tmp_path / "a", 5000)
    found = PackedFile(tmp_path / "a", KEY).matrix("0", form)
    assert found is not None
    assert np.array_equal(found, data)


def test_only_files_whose_writer_is_gone_are_removed(tmp_path: Path) -> None:
    writer = PackedFileWriter(tmp_path, PLENTY)
    writer.append("0", *matrix(64))
    dead = tmp_path / "dead.partial"
    dead.write_bytes(b"half a file")
    (tmp_path / "other").write_bytes(b"")
    remove_unfinished(tmp_path)
    assert not dead.exists()
    assert (tmp_path / "other").exists()
    writer.finish(tmp_path / "a", KEY)
    PackedFile(tmp_path / "a", KEY)


def test_a_file_taken_for_abandoned_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = packed_file.fcntl.flock
    calls: list[int] = []

    def late(descriptor: int, how: int) -> None:
        if not calls:
            for path in tmp_path.iterdir():
                path.unlink()
        calls.append(descriptor)
        lock(descriptor, how)

    monkeypatch.setattr(packed_file.fcntl, "flock", late)
    write_file(tmp_path / "a", 64)
    assert len(calls) == 2
    PackedFile(tmp_path / "a", KEY)


def test_a_writer_holds_few_descriptors(tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.exists():
        pytest.skip("this system does not list descriptors")
    writer = PackedFileWriter(tmp_path, PLENTY)
    before = len(list(descriptors.iterdir()))
    held = [writer.append(str(number), *matrix(64)) for number in range(100)]
    assert len(list(descriptors.iterdir())) <= before + 1
    assert len(held) == 100
    writer.abandon()
