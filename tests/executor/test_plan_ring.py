"""Frames through shared memory: all of them, in order, to every reader, however fast each is."""

import os
import random
import subprocess
import sys
from threading import Thread

import pytest

from quire.executor.plan_ring import PlanReader, PlanRing, has_rings

pytestmark = pytest.mark.skipif(not has_rings(), reason="there are no rings on this system")
ROOM = 4096


def frames(count: int) -> list[bytes]:
    draw = random.Random(7)
    return [draw.randbytes(draw.choice((0, 1, 40, 700, 1900))) for _ in range(count)]


def reader_of(ring: PlanRing, number: int) -> PlanReader:
    return PlanReader(os.dup(ring.descriptor), ring.readers, number, ring.room)


def test_every_reader_has_every_frame_many_times_around() -> None:
    ring, sent = PlanRing(2, ROOM), frames(400)
    heard: list[list[bytes]] = [[], []]

    def read(number: int) -> None:
        reader = readers[number]
        while (data := reader.read()) is not None:
            heard[number].append(data)

    readers = [reader_of(ring, number) for number in range(2)]
    threads = [Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for data in sent:
        assert ring.fits(len(data))
        ring.write(data, lambda: True)
    ring.close()
    ring.close()
    for thread in threads:
        thread.join(60)
    assert heard == [sent, sent]


def test_a_full_ring_waits_for_the_slowest_unless_it_is_gone() -> None:
    ring = PlanRing(1, ROOM)
    reader = reader_of(ring, 0)
    patience = iter([True, True, False])
    for _ in range(2):
        ring.write(bytes(1500), lambda: True)
    ring.write(bytes(1500), lambda: next(patience))
    assert next(patience, None) is None
    assert [len(reader.read() or b"") for _ in range(2)] == [1500, 1500]
    ring.close()
    assert reader.read() is None


def test_what_does_not_fit_is_said() -> None:
    ring = PlanRing(1, ROOM)
    assert ring.fits(1900)
    assert not ring.fits(2100)
    ring.close()


def test_numbers_begin_again() -> None:
    ring = PlanRing(1, ROOM)
    ring._count = ring._memory.written.value = ring._memory.taken[0].value = 2**32 - 3
    reader = reader_of(ring, 0)
    for data in frames(12):
        ring.write(data, lambda: True)
        assert reader.read() == data
    ring.close()


def test_another_process_reads_and_ends() -> None:
    ring = PlanRing(1, ROOM)
    code = (
        "import sys\nfrom quire.executor.plan_ring import PlanReader\n"
        f"reader = PlanReader(int(sys.argv[1]), 1, 0, {ROOM})\n"
        "while (data := reader.read()) is not None: print(len(data))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(ring.descriptor)], stdout=subprocess.PIPE, pass_fds=[ring.descriptor]
    )
    sent = frames(50)
    for data in sent:
        ring.write(data, lambda: True)
    ring.close()
    said, _ = process.communicate(timeout=60)
    assert [int(each) for each in said.split()] == list(map(len, sent))
