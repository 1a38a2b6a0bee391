"""Who takes part: each with how it is measured offline, how its server starts, and what a token costs it."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from benchmarks.peers import quire_peer, transformers_peer, vllm_cpu
from benchmarks.peers.cases import Case
from benchmarks.peers.child import ROOT, Child
from benchmarks.peers.llama_cpp import REPEATS, LlamaCpp, requantized
from benchmarks.peers.model_work import read_work
from benchmarks.peers.server_process import ServerCommand

MakeServer = Callable[[Case, int], ServerCommand]
"""For a case, on a port."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One engine with one file."""

    name: str
    bytes_per_token: float
    open: Callable[[bool], "Opened"]
    """With its prefix cache, where it has one, or without."""
    server: MakeServer | None


@dataclass(frozen=True, slots=True)
class Opened:
    """Ready to be measured."""

    rate: Callable[[Case, int], float]
    """Tokens a second of a case, with prompts of a seed."""
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Places:
    """Where the peers are on this machine; None: that one is left out."""

    gguf: Path
    folder: Path
    """For requantized files, expanded weights and logs."""
    llama_programs: Path | None
    vllm_python: Path | None
    threads: int


def all_contestants(places: Places) -> dict[str, Contestant]:
    found = [of_quire(places)]
    if places.llama_programs is not None:
        found += [of_llama(places, places.llama_programs, kind) for kind in ("", "Q4_0", "Q8_0")]
    if places.vllm_python is not None:
        found += [_vllm(places, places.vllm_python, dtype) for dtype in ("float32", "bfloat16")]
    found.append(_transformers(places))
    return {contestant.name: contestant for contestant in found}


def of_quire(places: Places) -> Contestant:
    options = [str(places.gguf)]
    return Contestant(
        "quire",
        read_work(places.gguf).bytes_per_token(),
        partial(
            _open_child, places, Path(sys.executable), quire_peer.MODULE, options, prefixes_option=[quire_peer.PREFIXES]
        ),
        partial(quire_peer.server, *options),
    )


def of_llama(places: Places, programs: Path, kind: str) -> Contestant:
    """The file itself, or its weights requantized."""
    gguf = requantized(programs, places.gguf, kind, places.folder) if kind else places.gguf
    llama = LlamaCpp(programs, gguf, places.threads)
    return Contestant(
        f"llama.cpp {kind or 'same file'}",
        read_work(gguf).bytes_per_token(),
        lambda _prefixes: Opened(lambda case, _seed: llama.rate(case), lambda: None),
        llama.server,
    )


def _vllm(places: Places, python: Path, dtype: str) -> Contestant:
    def start(prefixes: bool) -> Opened:
        options = [str(_expanded(places)), "--dtype", dtype]
        return _open_child(places, python, vllm_cpu.MODULE, options, prefixes, prefixes_option=["--prefixes"])

    def server(case: Case, port: int) -> ServerCommand:
        return vllm_cpu.server(python, _expanded(places), dtype, False, case, port, places.threads)

    bits = 32 if dtype == "float32" else 16
    return Contestant(
        f"vLLM {dtype}",
        read_work(places.gguf).bytes_per_token(bits),
        start,
        server,
    )


def _transformers(places: Places) -> Contestant:
    return Contestant(
        "transformers float32",
        read_work(places.gguf).bytes_per_token(32),
        partial(
            _open_child, places, Path(sys.executable), transformers_peer.MODULE, [str(places.gguf)], prefixes_option=[]
        ),
        None,
    )


def _expanded(places: Places) -> Path:
    folder = places.folder / f"{places.gguf.stem}.expanded"
    if not (folder / "config.json").exists():
        save = [sys.executable, "-m", transformers_peer.MODULE, str(places.gguf), "--save", str(folder)]
        subprocess.run(save, check=True, capture_output=True, cwd=ROOT)
    return folder


def _open_child(
    places: Places, python: Path, module: str, options: list[str], prefixes: bool, *, prefixes_option: list[str]
) -> Opened:
    options = [*options, *(prefixes_option if prefixes else [])]
    name = "_".join([module.rpartition(".")[2], *options[1:]]).replace("-", "")
    child = Child(python, module, options, places.threads, places.folder / f"{name}.log")

    def rate(case: Case, seed: int) -> float:
        if case.counts == "output":
            timing = child.generate(case.prompts(seed), case.output)
            return case.rate(timing.first, timing.total)
        # llama-bench runs a short case once for nothing, and then several times
        timings = [child.generate(case.prompts(1000 * seed + run), case.output) for run in range(1 + REPEATS)]
        return fmean(case.rate(timing.first, timing.total) for timing in timings[1:])

    return Opened(rate, child.close)
