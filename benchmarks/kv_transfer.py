"""How fast KV goes from one process to another, over shared memory and over TCP, beside copying memory.

    python benchmarks/kv_transfer.py [--mib 512] [--rounds 5] [--device cpu|cuda] [--shape llama-8b]

The blocks are those of SmolLM2-135M: 16 tokens of 30 layers with 3 KV heads of 64, in 16 bits; or of an 8B Llama. On a
GPU both ends use the same one, so that a block goes device → host → device.
"""

import argparse
import json
import multiprocessing
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from threading import Thread
from typing import Any

import numpy as np

from quire.config.resolved import KVGroup, KVLayout
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.transfer.fetcher import KVFetcher
from quire.kvcache.transfer.format import GroupFormat, KVFormat
from quire.kvcache.transfer.host_blocks import HostBlocks
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
class Figures:
    """GB a second, the best of the rounds."""

    memcpy: float
    """One copy of as many bytes inside a process."""
    shared_memory: float
    tcp_loopback: float
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


def send(address: str, shape: Shape, num_blocks: int, device: str, told: Any) -> None:
    """The other process: an engine that has every block by name."""
    _, blocks = blocks_of(shape, num_blocks, device, filled=True)
    sender = KVSender(address, shape.format, blocks, SECRET, lambda: None)
    told.put(sender.address)
    while True:
        opened = sender.wants.get()
        held = [int.from_bytes(name, "little") for name in opened.want.names]
        opened.send(list(range(len(held))), held)
        opened.done()


def measured(address: str, shape: Shape, num_blocks: int, rounds: int, device: str) -> float:
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    process = context.Process(target=send, args=(address, shape, num_blocks, device, told), daemon=True)
    process.start()
    try:
        source = told.get(timeout=120)
        _, blocks = blocks_of(shape, num_blocks, device, filled=False)
        fetcher = KVFetcher(shape.format, blocks, SECRET, lambda: None)
        best = 0.0
        for _ in range(rounds + 1):  # in the first, memory is touched for the first time
            entries = [CachedBlock(i, 0, b"", i.to_bytes(32, "little"), (0,), 0) for i in range(1, num_blocks + 1)]
            begun = time.perf_counter()
            fetch = fetcher.fetch(source, entries)
            assert all(fetch.events.get(timeout=120)[1] for _ in entries), "a block did not come"
            best = max(best, num_blocks * shape.format.block_bytes / (time.perf_counter() - begun))
        return best / 1e9
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
    with tempfile.TemporaryDirectory() as folder:
        figures = Figures(
            memcpy=memcpy(size, asked.rounds),
            shared_memory=measured(f"unix://{folder}/kv", shape, num_blocks, asked.rounds, asked.device),
            tcp_loopback=measured("tcp://127.0.0.1:0", shape, num_blocks, asked.rounds, asked.device),
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
