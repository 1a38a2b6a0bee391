"""Blocks in files: what was written is read again, by another process too, and nothing else is."""

import os
from pathlib import Path

import pytest

from quire.kvcache.disk import StoredBlock
from quire.kvcache.disk_folders import own_folder, remove_unused
from quire.kvcache.segments import SUFFIX, Damaged, Segments, slots_each, slots_in

SIZE = 3000
ME, OTHER = b"m" * 32, b"o" * 32
MINE = ME.hex()[:32]


def opened(folder: Path, identity: bytes = ME, slots: int = 100, size: int = SIZE) -> Segments:
    own, lock = own_folder(folder, ME)
    return Segments(own, identity, size, slots, lock)


def name(number: int) -> bytes:
    return bytes([number]) * 32


def block(number: int, size: int = SIZE) -> memoryview:
    return memoryview(bytes([number]) * size)


def filled(folder: Path, *numbers: int) -> None:
    segments = opened(folder)
    assert segments.scan() == ([], [], [])
    for number in numbers:
        segments.write(number, 0, name(number), block(number))
    segments.close()


def read(segments: Segments, number: int) -> bytes:
    into = memoryview(bytearray(SIZE))
    segments.read(number, name(number), into)
    return bytes(into)


def test_another_process_finds_what_was_written(tmp_path: Path) -> None:
    filled(tmp_path, 3, 1, 7)
    segments = opened(tmp_path)
    found, unusable, problems = segments.scan()
    assert {(each.slot, each.name, each.sequence) for each in found} == {
        (3, name(3), 1),
        (1, name(1), 2),
        (7, name(7), 3),
    }
    assert (unusable, problems) == ([], [])
    assert read(segments, 7) == bytes(block(7))
    segments.write(3, 1, name(4), block(4), is_retained=True)
    segments.close()
    segments = opened(tmp_path)
    assert StoredBlock(3, 1, name(4), 4, True) in segments.scan()[0]
    with pytest.raises(Damaged, match="another block"):
        read(segments, 3)


def test_files_are_this_users_alone(tmp_path: Path) -> None:
    filled(tmp_path / "kv", 1)
    assert (tmp_path / "kv" / MINE / "0").stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "kv" / MINE / "0").iterdir())


@pytest.mark.parametrize("where", ["bytes", "entry", "end"])
def test_damage_is_noticed(tmp_path: Path, where: str) -> None:
    filled(tmp_path, 1, 2)
    [path] = (tmp_path / MINE / "0").glob("*.kv")
    data = bytearray(path.read_bytes())
    if where == "entry":
        data[4096 + 3] ^= 1  # of slot 1
    elif where == "bytes":
        data[data.index(bytes(block(1))) + 1234] ^= 1
    else:
        del data[-100:]  # of slot 2
    path.write_bytes(data)
    segments = opened(tmp_path)
    found, _, problems = segments.scan()
    assert problems == []
    damaged, whole = (2, 1) if where == "end" else (1, 2)
    assert (damaged in {each.slot for each in found}) == (where != "entry")
    with pytest.raises(Damaged):
        read(segments, damaged)
    assert read(segments, whole) == bytes(block(whole))


@pytest.mark.parametrize("kind", ["foreign", "other model", "other size", "damaged", "writable", "link", "empty"])
def test_files_of_something_else_are_left_alone(tmp_path: Path, kind: str) -> None:
    filled(tmp_path, 1)
    [path] = (tmp_path / MINE / "0").glob("*.kv")
    data = bytearray(path.read_bytes())
    if kind == "foreign":
        data[:8] = b"somebody"
    elif kind == "damaged":
        data[20] ^= 1
    elif kind == "empty":
        data.clear()
    path.write_bytes(data)
    if kind == "writable":
        path.chmod(0o666)
    elif kind == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    before = path.read_bytes()
    segments = opened(tmp_path, OTHER if kind == "other model" else ME, 100, 4000 if kind == "other size" else SIZE)
    found, unusable, [problem] = segments.scan()
    assert found == []
    assert unusable == list(range(1, 101))
    assert str(path) in problem
    assert path.read_bytes() == before


def test_two_engines_never_share_a_folder(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    first, second = opened(tmp_path), opened(tmp_path)
    assert len(first.scan()[0]) == 1
    assert second.scan() == ([], [], [])
    first.close()
    third = opened(tmp_path)
    assert len(third.scan()[0]) == 1
    second.close()
    third.close()


def test_less_room_than_before(tmp_path: Path) -> None:
    size = 8 << 20
    segments = opened(tmp_path, slots=20, size=size)
    each = slots_each(size)
    assert each == 8
    for number in (1, each + 1, 2 * each + 1):
        segments.write(number, 0, name(number), block(number, size))
    segments.close()
    segments = opened(tmp_path, slots=each, size=size)
    assert [stored.slot for stored in segments.scan()[0]] == [1]
    assert len(list((tmp_path / MINE / "0").glob("*.kv"))) == 1


def test_files_take_no_more_than_they_may(tmp_path: Path) -> None:
    room = 3 << 20
    slots = slots_in(room, SIZE)
    assert slots > 400
    segments = opened(tmp_path, slots=slots)
    segments.write(slots, 0, name(1), block(1))
    assert os.stat(next((tmp_path / MINE / "0").glob("*.kv"))).st_size <= room


def test_what_other_models_left_goes_when_there_is_too_much_of_it(tmp_path: Path) -> None:
    used = {}
    for place, letter in enumerate("abcd"):
        folder, lock = own_folder(tmp_path, letter.encode() * 32)
        (folder / f"00000000{SUFFIX}").write_bytes(bytes(1 << 20))
        if letter == "b":
            (folder / "notes").write_text("not KV")
        os.utime(folder, (place, place))
        used[letter] = folder
        if letter != "a":  # whose engine runs
            os.close(lock)
    (tmp_path / "photos").mkdir()
    own, lock = own_folder(tmp_path, ME)
    assert remove_unused(tmp_path, own, 10 << 20, SUFFIX) == []
    assert set(remove_unused(tmp_path, own, 1 << 20, SUFFIX)) == {used["b"], used["c"]}
    assert [used[letter].exists() for letter in "abcd"] == [True, True, False, True]
    assert [path.name for path in used["b"].iterdir()] == ["notes"]
    assert (tmp_path / "photos").exists()
    os.close(lock)
