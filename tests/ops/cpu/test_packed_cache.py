"""The cache of packed matrices: found again, rebuilt when it is not to be trusted, and never in the way of a start."""

import hashlib
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from quire.ops.cpu import native, packed_cache
from quire.ops.cpu.layouts import MatrixForm
from quire.ops.cpu.matrix import StoredRows, fill, packed_form
from quire.ops.cpu.packed_cache import LAYOUT_VERSION, PackedCache, cache_key, open_packed_cache
from quire.ops.cpu.packed_file import Bytes

FORM = MatrixForm(1, 10, 10, 100, ("Q8_0",))
Usage = namedtuple("Usage", "total used free")

DIGESTS = {
    "Q4_0": "90f3f0bbe979b980",
    "Q4_1": "a978bf1ce408733b",
    "Q4_K": "fe0675cd29202fc8",
    "Q8_0": "ae12ba16d2bfd61f",
    "MXFP4": "9825d4b3f0714e92",
    "Q6_K": "ea8af3ba06b3eaf9",
    "float32": "b3771ffb66fba2e6",
    "float16": "bc9ec963d9fc51e9",
    "bfloat16": "e4bb9fda43469f6f",
}
"""What a fixed matrix of each type becomes at LAYOUT_VERSION."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "packed"


def value(seed: int = 0) -> Bytes:
    return np.full(FORM.size, seed, dtype=np.uint8)


def never() -> Bytes:
    raise AssertionError("the cache has it")


def build(folder: Path, model: Path, *names: str) -> PackedCache:
    """A cache whose matrices hold their place among `names`."""
    cache = open_packed_cache(folder, [model], "kept")
    for number, name in enumerate(names):
        assert np.array_equal(cache.matrix(name, FORM, partial(value, number)), value(number))
    cache.commit()
    return cache


def cache_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def own_file(model: Path) -> str:
    return f"{cache_key([model], 'kept')}.packed"


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_next_start_packs_nothing(folder: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(folder, model, "a", "b", "c")
    assert cache_files(folder) == [own_file(model)]
    again = open_packed_cache(folder, [model], "kept")
    for number, name in ((2, "c"), (0, "a"), (1, "b")):
        assert np.array_equal(again.matrix(name, FORM, never), value(number))
    again.commit()
    assert len(cache_files(folder)) == 1
    assert not messages(caplog)


def test_only_the_user_sees_it(folder: Path, model: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    build(folder, model, "a")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def touched(model: Path) -> None:
    os.utime(model, ns=(0, 1))


def grown(model: Path) -> None:
    status = model.stat()
    model.write_bytes(b"weights and more")
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", [touched, grown])
def test_a_checkpoint_that_changed_is_packed_again(folder: Path, model: Path, change: Callable[[Path], None]) -> None:
    before = cache_key([model], "kept")
    change(model)
    assert cache_key([model], "kept") != before


def test_what_else_makes_a_key(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "copy.gguf"
    shutil.copy2(model, other)
    link = tmp_path / "link.gguf"
    link.symlink_to(model)
    keys = [cache_key([model], "kept"), cache_key([other], "kept"), cache_key([model], "expanded")]
    keys.append(cache_key([model, other], "kept"))
    assert len(set(keys)) == 4
    assert cache_key([other, model], "kept") == keys[3]
    assert cache_key([link], "kept") == keys[0]
    monkeypatch.setattr(packed_cache, "LAYOUT_VERSION", LAYOUT_VERSION + 1)
    assert cache_key([model], "kept") != keys[0]


def test_a_damaged_file_is_said_once_and_made_anew(folder: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(folder, model, "a")
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    build(folder, model, "a")
    (message,) = messages(caplog)
    assert "made anew" in message
    assert np.array_equal(open_packed_cache(folder, [model], "kept").matrix("a", FORM, never), value(0))


def test_a_file_that_lacks_matrices_is_made_anew(folder: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(folder, model, "a")
    build(folder, model, "a", "b", "c")
    (message,) = messages(caplog)
    assert "lacks b" in message
    assert cache_files(folder) == []
    build(folder, model, "a", "b", "c")
    open_packed_cache(folder, [model], "kept").matrix("c", FORM, never)


def test_two_matrices_of_one_name_are_refused(folder: Path, model: Path) -> None:
    cache = open_packed_cache(folder, [model], "kept")
    cache.matrix("a", FORM, value)
    with pytest.raises(ValueError, match="'a' is there already"):
        cache.matrix("a", FORM, value)
    cache.discard()


def test_a_load_that_failed_leaves_nothing(folder: Path, model: Path) -> None:
    cache = open_packed_cache(folder, [model], "kept")
    data = cache.matrix("a", FORM, lambda: value(3))
    cache.discard()
    cache.discard()
    cache.commit()
    assert cache_files(folder) == []
    assert np.array_equal(data, value(3))


def test_nothing_is_found_before_it_is_committed(folder: Path, model: Path) -> None:
    first, second = (open_packed_cache(folder, [model], "kept") for _ in range(2))
    for number, cache in enumerate((first, second)):
        assert np.array_equal(cache.matrix("a", FORM, partial(value, number)), value(number))


def test_two_that_build_at_once_both_succeed(folder: Path, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = (open_packed_cache(folder, [model], "kept") for _ in range(2))
    held = [cache.matrix("a", FORM, lambda: value(5)) for cache in (first, second)]
    first.commit()
    third = open_packed_cache(folder, [model], "kept").matrix("a", FORM, never)
    second.commit()
    for data in (*held, third, open_packed_cache(folder, [model], "kept").matrix("a", FORM, never)):
        assert np.array_equal(data, value(5))
    assert len(cache_files(folder)) == 1
    assert not messages(caplog)


def test_threads_may_share_it(folder: Path, model: Path) -> None:
    cache = open_packed_cache(folder, [model], "kept")
    found: dict[int, Bytes] = {}

    def add(first: int) -> None:
        for number in range(first, 100, 4):
            found[number] = cache.matrix(str(number), FORM, partial(value, number))

    threads = [threading.Thread(target=add, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.commit()
    again = open_packed_cache(folder, [model], "kept")
    for number in range(100):
        assert np.array_equal(found[number], value(number))
        assert np.array_equal(again.matrix(str(number), FORM, never), value(number))


def test_a_process_that_dies_leaves_nothing_for_long(folder: Path, model: Path) -> None:
    dying = (
        "import os, sys, numpy\n"
        "from pathlib import Path\n"
        "from quire.ops.cpu.packed_cache import open_packed_cache\n"
        "from quire.ops.cpu.layouts import MatrixForm\n"
        "cache = open_packed_cache(Path(sys.argv[1]), [Path(sys.argv[2])], 'kept')\n"
        "cache.matrix('a', MatrixForm(1, 10, 10, 100, ('Q8_0',)), lambda: numpy.zeros(100, dtype='uint8'))\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", dying, str(folder), str(model)], check=True)
    (left,) = cache_files(folder)
    assert left.endswith(".partial")
    build(folder, model, "a")
    (left,) = cache_files(folder)
    assert left.endswith(".packed")


@pytest.mark.parametrize("name", ["mkdir", "chmod"])
def test_a_folder_that_cannot_be_had(
    folder: Path, model: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if name == "chmod":
        folder.mkdir(parents=True)
        folder.chmod(0o755)

    def refuse(*given: object, **more: object) -> None:
        raise PermissionError("Read-only file system")

    monkeypatch.setattr(Path, name, refuse)
    build(folder, model, "a", "b")
    (message,) = messages(caplog)
    assert "Read-only file system" in message
    assert "in memory" in message


def test_a_folder_of_another_user(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    build(folder, model, "a")
    assert cache_files(folder) == []


def test_a_disk_that_fills_up(
    folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, calls = os.pwrite, []

    def fill_up(descriptor: int, data: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", fill_up)
    build(folder, model, "a", "b", "c")
    (message,) = messages(caplog)
    assert "No space left" in message
    assert cache_files(folder) == []


def test_a_commit_that_fails(
    folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    build(folder, model, "a")
    (message,) = messages(caplog)
    assert "Input/output error" in message
    assert cache_files(folder) == []


def test_a_checkpoint_that_is_gone(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(folder, tmp_path / "gone", "a")
    assert len(messages(caplog)) == 1
    assert not folder.exists()


def with_free(monkeypatch: pytest.MonkeyPatch, free: Callable[[], int]) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 0, free()))


def test_a_checkpoint_larger_than_half_of_the_disk(
    folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_free(monkeypatch, lambda: 2 * model.stat().st_size - 1)
    build(folder, model, "a")
    (message,) = messages(caplog)
    assert "half" in message
    assert cache_files(folder) == []


def test_matrices_that_grow_past_half_of_the_disk(
    folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_free(monkeypatch, lambda: 2 * (4096 + 250))
    build(folder, model, "a", "b", "c", "d")
    (message,) = messages(caplog)
    assert "half" in message
    assert cache_files(folder) == []


def old_files(folder: Path, count: int, size: int = 1) -> None:
    """`0.packed`, which was not used for longest, and so on."""
    folder.mkdir(parents=True)
    for number in range(count):
        path = folder / f"{number}.packed"
        path.write_bytes(bytes(size))
        os.utime(path, ns=(0, number))


def test_few_files_are_kept_and_those_used_last(folder: Path, model: Path) -> None:
    old_files(folder, 8)
    build(folder, model, "a")
    assert set(cache_files(folder)) == {f"{number}.packed" for number in range(1, 8)} | {own_file(model)}


def test_use_counts_and_not_age(folder: Path, tmp_path: Path, model: Path) -> None:
    build(folder, model, "a")
    (used,) = folder.iterdir()
    os.utime(used, ns=(0, 0))
    open_packed_cache(folder, [model], "kept").matrix("a", FORM, never)
    assert used.stat().st_mtime_ns > 0


def test_old_files_make_room(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_files(folder, 4, size=10_000)
    model.write_bytes(bytes(12_000))
    with_free(monkeypatch, lambda: 40_000 - sum(path.stat().st_size for path in folder.glob("?.packed")))
    build(folder, model, "a")
    assert set(cache_files(folder)) == {"3.packed", own_file(model)}


def test_old_files_are_not_deleted_for_nothing(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_files(folder, 4, size=10_000)
    model.write_bytes(bytes(1_000_000))
    with_free(monkeypatch, lambda: 40_000)
    build(folder, model, "a")
    assert len(cache_files(folder)) == 4


def a_matrix(kind: str) -> StoredRows:
    """20 rows of 256 columns; small bytes, so that scales are numbers in every type."""
    if kind.startswith(("float", "bfloat")):
        return StoredRows(kind, (torch.arange(20 * 256).view(20, 256) % 97 - 48).to(getattr(torch, kind)) / 64, 20)
    sizes = {"Q4_0": 8 * 18, "Q4_1": 8 * 20, "Q4_K": 144, "Q8_0": 8 * 34, "MXFP4": 8 * 17, "Q6_K": 210}
    data = (torch.arange(20 * sizes[kind]) * 7 % 61).to(torch.uint8)
    return StoredRows(kind, data.view(20, -1), 20)


@pytest.mark.parametrize("kind", DIGESTS)
def test_the_layout_version_stands_for_these_bytes(kind: str) -> None:
    core = native.load()
    if core is None:
        pytest.skip("the native core is not built here")
    part = a_matrix(kind)
    for variant in core.variants():  # they share files
        data = torch.zeros(packed_form([part], 256).size, dtype=torch.uint8)
        fill(core.Machine(1, [], variant), [part], 256, data)
        digest = hashlib.sha256(data.numpy().tobytes()).hexdigest()[:16]
        assert (LAYOUT_VERSION, digest) == (1, DIGESTS[kind]), "raise LAYOUT_VERSION, and write both down here"
