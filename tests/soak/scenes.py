"""The scenes of a soak: which servers stand, in which shape, what is asked of them and what may happen to them."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np

from quire.models.loading.locate import locate
from tests.soak.asks import picture_asks, sound_asks, text_asks
from tests.soak.clock_hook.sitecustomize import CLOCK
from tests.soak.cut_proxy import CutProxy
from tests.soak.launch import KEY, Launched
from tests.soak.small_disk import SmallDisk
from tests.soak.stage import Stage, Target

MODEL = "smollm2"
_HOOK = Path(__file__).with_name("clock_hook")
_TOKENS = 16
_DISK_MIB = 448
"""The store keeps 128 MiB free for others; prefixes take up to 140."""
_SMALL = ("--num-gpu-blocks-override", "192", "--max-model-len", "1024", "--max-num-seqs", "6", "--cpu-threads", "1")
"""So few blocks that long prompts evict others, and so few rows that some requests wait."""


def _serve(folder: Path, name: str, model: str, *options: str, clock: Path, store: Path | None = None) -> Launched:
    """With a folder of its own for sockets: what is left there in the end was leaked."""
    sockets = folder / f"tmp-{name}"
    sockets.mkdir()
    path = os.pathsep.join([str(_HOOK), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    variables = {"TMPDIR": str(sockets), "QUIRE_API_KEY": KEY, CLOCK: str(clock), "PYTHONPATH": path}
    words = ["serve", model, "--log-format", "json", "--store", str(store or folder / f"store-{name}"), *options]
    return Launched(name, folder, words, variables)


@contextmanager
def _standing(stage: Stage) -> Iterator[Stage]:
    """Everything is started and ready; afterwards it is gone, however the scene ended."""
    with ExitStack() as cleaning:
        for proxy in stage.proxies:
            cleaning.callback(proxy.stop)
            proxy.start()
        if stage.disk is not None:
            cleaning.callback(stage.disk.close)
        for each in stage.all:
            cleaning.callback(each.kill)
            each.start()
        for each in stage.all:
            each.wait_until_well()
        yield stage


def fronts(folder: Path) -> AbstractContextManager[Stage]:
    """Two fronts and two engines of the default model, with adapters, prefixes on disk, files and batches."""
    from benchmarks.random_adapters import write_adapters

    adapters = [path.name for path in write_adapters(str(locate(MODEL)), folder / "adapters", [4, 8], 0.03)]
    disk, clock = SmallDisk(folder / "disk", _DISK_MIB), folder / "clock"
    options: tuple[str, ...] = (
        *_SMALL,
        "--api-server-count",
        "2",
        "--replicas",
        "2",
        "--enable-lora",
        "--max-lora-rank",
        "8",
    )
    options += (
        "--lora-dir",
        str(folder / "adapters"),
        "--kv-disk-path",
        str(disk.folder / "kv"),
        "--kv-disk-gb",
        "0.14",
    )
    server = _serve(folder, "fronts", MODEL, *options, clock=clock, store=disk.folder / "store")
    target = Target(server.url, MODEL, text_asks(MODEL, _TOKENS, adapters=tuple(adapters)))
    faults = [
        "engine killed",
        "engine stopped",
        "engine paused",
        "engine out of memory",
        "front killed",
        "helper killed",
    ]
    faults += ["clock jumps", "disk full"] if disk.can_be_full else ["clock jumps"]
    return _standing(Stage([server], [target], tuple(faults), folder, disk=disk, clock=clock))


def router(folder: Path) -> AbstractContextManager[Stage]:
    """A router before two instances of the default model, over networks that break."""
    clock = folder / "clock"
    servers = [_serve(folder, f"instance{place}", MODEL, *_SMALL, clock=clock) for place in range(2)]
    proxies = [CutProxy(server.port) for server in servers]
    members = [word for proxy in proxies for word in ("--member", f"http://127.0.0.1:{proxy.port}")]
    route = Launched("router", folder, ["route", *members, "--health-timeout", "3", "--log-format", "json"])
    # files, batches and stored responses lie on one instance, and are away while it is
    asks = [ask for ask in text_asks(MODEL, _TOKENS) if ask.style not in ("batch", "stored", "upload")]
    faults = ("network cut", "network silent", "instance killed", "instance stopped", "engine killed", "clock jumps")
    stage = Stage(servers, [Target(route.url, MODEL, asks)], faults, folder, router=route, proxies=proxies, clock=clock)
    return _standing(stage)


def ranks(folder: Path) -> AbstractContextManager[Stage]:
    """A tiny model over two ranks: what a worker's death or silence costs."""
    from tests.tiny_chat import write_tiny_chat

    model, clock = write_tiny_chat(folder / "tiny"), folder / "clock"
    options: tuple[str, ...] = (
        "--tensor-parallel-size",
        "2",
        "--dtype",
        "float32",
        "--cpu-compute",
        "exact",
        "--rank-timeout",
        "8",
    )
    options += ("--served-model-name", "tiny", "--num-gpu-blocks-override", "128", "--max-num-seqs", "6")
    server = _serve(folder, "ranks", str(model), *options, clock=clock)
    target = Target(server.url, "tiny", text_asks("tiny", 16, is_tiny=True), loose=True)
    faults = ("rank killed", "rank stopped", "engine killed", "helper killed", "clock jumps")
    stage = Stage([server], [target], faults, folder, clock=clock, expected_tracebacks=("RankLost", "RankGone", "gloo"))
    return _standing(stage)


def media(folder: Path) -> AbstractContextManager[Stage]:
    """Two tiny models beside each other: one reads pictures, one writes down what is said."""
    from tests.multimodal.sounds import wav
    from tests.multimodal.tiny_vision import as_bytes, make_vision, picture
    from tests.parity.tiny_whisper import make_whisper

    clock, ear, eye = folder / "clock", folder / "ear", folder / "eye"
    ear.mkdir()
    eye.mkdir()
    make_whisper(ear, seed=3, num_mel_bins=80)
    vision = make_vision("qwen2_5_vl", eye)
    small = ("--dtype", "float32", "--gpu-memory-utilization", "0.05", "--max-num-seqs", "4")
    seeing = _serve(folder, "eye", str(vision.folder), *small, "--served-model-name", "eye", clock=clock)
    hearing = _serve(folder, "ear", str(ear), *small, "--served-model-name", "ear", clock=clock)
    pictures = [as_bytes(picture(48 + 12 * place, 60, place)) for place in range(4)]
    noise = [np.random.default_rng(place).standard_normal(16_000).astype(np.float32) / 10 for place in range(3)]
    sounds = [wav(np.clip(each, -1, 1)) for each in noise]  # type: ignore[no-untyped-call]
    targets = [
        Target(seeing.url, "eye", picture_asks("eye", 12, pictures), loose=True),
        Target(hearing.url, "ear", sound_asks("ear", sounds), loose=True),
    ]
    return _standing(
        Stage([seeing, hearing], targets, ("engine killed", "helper killed", "clock jumps"), folder, clock=clock)
    )


def short(folder: Path) -> AbstractContextManager[Stage]:
    """A tiny model behind two fronts, for the tests: it starts in a moment."""
    from tests.tiny_chat import write_tiny_chat

    model, clock = write_tiny_chat(folder / "tiny"), folder / "clock"
    options = ("--api-server-count", "2", "--served-model-name", "tiny")
    server = _serve(folder, "short", str(model), *options, "--num-gpu-blocks-override", "128", clock=clock)
    one_each = {ask.name: ask for ask in text_asks("tiny", 8, is_tiny=True)}
    target = Target(server.url, "tiny", list(one_each.values()))
    return _standing(Stage([server], [target], ("engine killed", "front killed", "clock jumps"), folder, clock=clock))


SCENES: dict[str, Callable[[Path], AbstractContextManager[Stage]]] = {
    "fronts": fronts,
    "router": router,
    "ranks": ranks,
    "media": media,
    "short": short,
}
LONG = ("fronts", "router", "ranks", "media")
"""Those that a soak plays unless told otherwise."""
