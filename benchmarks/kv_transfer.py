"""How fast KV goes from one process to another, over shared memory, over TCP and read by NIXL, beside copying memory.

    python benchmarks/kv_transfer.py [--mib 512] [--rounds 5] [--device cpu|cuda] [--shape llama-8b]

The blocks are those of SmolLM2-135M: 16 tokens of 30 layers with 3 KV heads of 64, in 16 bits; or of an 8B Llama. On a
GPU both ends use the same one, so that a block goes device → host → device.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from quire.config.resolved import KVGroup, KVLayout
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.transfer.fetcher import KVFetcher
from quire.kvcache.transfer.format import GroupFormat, KVFormat
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.kvcache.transfer.nixl_carrier import NixlMemory, open_nixl
from quire.kvcache.transfer.sender import KVSender

SECRET = b"of this measurement alone"
BLOCK_SIZE = 16


@dataclass(frozen=True)
class Shape:
    """Of a model's KV, in 16 bits."""

    layers: int
    heads: int
    width: int

    @property
    def bytes_per_token(self) -> int:
        return self.layers * 2 * self.heads * self.width * 2

    @property
    def format(self) -> KVFormat:
        return KVFormat(
            model="measured",
            kind="keys and values",
            dtype="float16",
            block_size=BLOCK_SIZE,
            num_planes=2 * self.layers,
            plane=(self.heads, self.width),
            groups=(GroupFormat(tuple(range(self.layers)), None),),
        )

    def layout(self, num_blocks: int) -> KVLayout:
        planes = ((self.heads, self.width), (self.heads, self.width))
        group = KVGroup(tuple(range(self.layers)), None, planes)
        return KVLayout(BLOCK_SIZE, num_blocks, 0, (group,), self.format.block_bytes, self.bytes_per_token, "float16")


SHAPES = {"smollm2": Shape(30, 3, 64), "llama-8b": Shape(32, 8, 128)}


@dataclass
class Rate:
    """GB a second."""

    by_clock: float
    """The best of the rounds."""
    by_processor: float
    """By the processor time of the busier of the two processes, over all rounds: what they would reach, about, on a
    machine that has nothing else to do."""


@dataclass
class Figures:
    """GB a second, the best of the rounds."""

    memcpy: float
    """One copy of as many bytes inside a process."""
    shared_memory: Rate
    tcp_loopback: Rate
    nixl: Rate | None
    """Read by the other process out of the memory it lies in (UCX over what the machine has); None where NIXL is not
    installed."""
    tcp_of_the_system: float
    """What two sockets carry without anything else to do: what iperf measures, with this language's calls."""
    iperf3: float | None
    """What iperf3 measures over loopback with one stream; None where it is not installed."""
    bytes_per_token: int
    bytes_carried: int


def blocks_of(shape: Shape, num_blocks: int, device: str, *, filled: bool) -> tuple[Any, Any]:
    """Bytes of blocks, and what reads and writes them."""
    plan = shape.layout(num_blocks)
    if device == "cpu":
        memory = np.ones((num_blocks + 1) * shape.format.block_bytes, np.uint8) * int(filled)
        return memory, HostBlocks(memory, plan)
    import torch

    from quire.kvcache.storage import KVStorage

    storage = KVStorage(plan, torch.float16, torch.device(device))
    if filled:
        storage._device.normal_()
    return storage, storage.carried_blocks()


def nixl_of(blocks: Any) -> NixlMemory:
    return open_nixl(blocks, on_one_host=True)


def send(address: str, shape: Shape, num_blocks: int, device: str, by_nixl: bool, told: Any) -> None:
    """The other process: an engine that has every block by name."""
    _, blocks = blocks_of(shape, num_blocks, device, filled=True)
    nixl = nixl_of(blocks) if by_nixl else None
    sender = KVSender(address, shape.format, blocks, SECRET, lambda: None, nixl=nixl)
    told.put(sender.address)
    while True:
        opened = sender.wants.get()
        held = [int.from_bytes(name, "little") for name in opened.want.names]
        opened.send(list(range(len(held))), held)
        opened.done()


def processor_seconds(pid: int | str | None) -> float:
    """That a process has used so far, its own and the system's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measured(address: str, shape: Shape, num_blocks: int, rounds: int, device: str, *, by_nixl: bool = False) -> Rate:
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    process = context.Process(target=send, args=(address, shape, num_blocks, device, by_nixl, told), daemon=True)
    process.start()
    try:
        source = told.get(timeout=120)
        _, blocks = blocks_of(shape, num_blocks, device, filled=False)
        nixl = nixl_of(blocks) if by_nixl else None
        fetcher = KVFetcher(shape.format, blocks, SECRET, lambda: None, nixl=nixl)
        best, size = 0.0, num_blocks * shape.format.block_bytes
        for number in range(rounds + 1):  # in the first, memory is touched for the first time
            if number == 1:
                used = processor_seconds(process.pid), processor_seconds("self")
            entries = [CachedBlock(i, 0, b"", i.to_bytes(32, "little"), (0,), 0) for i in range(1, num_blocks + 1)]
            begun = time.perf_counter()
            fetch = fetcher.fetch(source, entries)
            assert all(fetch.events.get(timeout=120)[1] for _ in entries), "a block did not come"
            best = max(best, size / (time.perf_counter() - begun))
        busier = max(processor_seconds(process.pid) - used[0], processor_seconds("self") - used[1])
        return Rate(best / 1e9, rounds * size / busier / 1e9)
    finally:
        process.terminate()
        process.join()


def device_rates(shape: Shape, num_blocks: int, rounds: int) -> dict[str, float]:
    """GB a second between a GPU and locked memory: blocks, and a plain copy of as many bytes; idle, beside steps."""
    from mmap import mmap

    import torch

    _, blocks = blocks_of(shape, num_blocks, "cuda", filled=True)
    size = num_blocks * shape.format.block_bytes
    staged = memoryview(mmap(-1, size))
    blocks.lock(staged)
    plain, host = (
        torch.empty(size, dtype=torch.uint8, device="cuda"),
        torch.empty(size, dtype=torch.uint8, pin_memory=True),
    )
    order = list(range(1, num_blocks + 1))
    work = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def rate(copy: Any, *, beside_steps: bool) -> float:
        best = 0.0
        for _ in range(rounds + 1):
            torch.cuda.synchronize()
            for _ in range(400 if beside_steps else 0):
                work @ work
            begun = time.perf_counter()
            copy()
            best = max(best, size / (time.perf_counter() - begun))
        torch.cuda.synchronize()
        return best / 1e9

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def plainly(target: Any, source: Any) -> None:
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
            stream.synchronize()

    return {
        "blocks_to_host": rate(lambda: blocks.read(order, staged), beside_steps=False),
        "blocks_to_host_beside_steps": rate(lambda: blocks.read(order, staged), beside_steps=True),
        "blocks_to_device": rate(lambda: blocks.write(order, staged, None), beside_steps=False),
        "blocks_to_device_beside_steps": rate(lambda: blocks.write(order, staged, None), beside_steps=True),
        "plain_to_host": rate(lambda: plainly(host, plain), beside_steps=False),
        "plain_to_host_beside_steps": rate(lambda: plainly(host, plain), beside_steps=True),
        "plain_to_device": rate(lambda: plainly(plain, host), beside_steps=False),
    }


def memcpy(size: int, rounds: int) -> float:
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    best = 0.0
    for _ in range(rounds):
        begun = time.perf_counter()
        np.copyto(target, source)
        best = max(best, size / (time.perf_counter() - begun))
    return best / 1e9


def _send_all(writer: socket.socket, piece: memoryview, count: int) -> None:
    for _ in range(count):
        writer.sendall(piece)


def plain_tcp(size: int, rounds: int) -> float:
    best = 0.0
    piece = memoryview(bytearray(4 << 20))
    for _ in range(rounds):
        with socket.create_server(("127.0.0.1", 0)) as server:
            writer = socket.create_connection(server.getsockname())
            reader, _ = server.accept()
            begun = time.perf_counter()
            thread = Thread(target=_send_all, args=(writer, piece, size // len(piece)))
            thread.start()
            room, left = memoryview(bytearray(4 << 20)), size // len(piece) * len(piece)
            while left:
                left -= reader.recv_into(room)
            best = max(best, size / (time.perf_counter() - begun))
            thread.join()
            writer.close()
            reader.close()
    return best / 1e9


def iperf3(seconds: int = 3) -> float | None:
    """GB a second over loopback."""
    program = shutil.which("iperf3")
    if program is None:
        return None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    server = subprocess.Popen([program, "-s", "-1", "-p", port], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            command = [program, "-c", "127.0.0.1", "-p", port, "-t", str(seconds), "-J"]
            asked = subprocess.run(command, capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                return float(json.loads(asked.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e9
            time.sleep(0.1)  # the server is not listening yet
        return None
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shape", choices=SHAPES, default="smollm2")
    asked = parser.parse_args()
    shape = SHAPES[asked.shape]
    num_blocks = (asked.mib << 20) // shape.format.block_bytes
    size = num_blocks * shape.format.block_bytes
    how = shape, num_blocks, asked.rounds, asked.device
    with tempfile.TemporaryDirectory() as folder:
        figures = Figures(
            memcpy=memcpy(size, asked.rounds),
            shared_memory=measured(f"unix://{folder}/kv", *how),
            tcp_loopback=measured("tcp://127.0.0.1:0", *how),
            nixl=measured(f"unix://{folder}/nixl", *how, by_nixl=True) if find_spec("nixl") else None,
            tcp_of_the_system=plain_tcp(size, asked.rounds),
            iperf3=iperf3(),
            bytes_per_token=shape.format.block_bytes // BLOCK_SIZE,
            bytes_carried=size,
        )
    assert figures.bytes_per_token == shape.bytes_per_token
    told = asdict(figures)
    if asked.device == "cuda":
        told["device"] = device_rates(shape, num_blocks, asked.rounds)
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
