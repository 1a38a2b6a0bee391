"""llama.cpp by its own programs: llama-bench, llama-batched-bench, llama-server, llama-quantize."""

import json
import subprocess
from pathlib import Path

from benchmarks.peers.cases import Case
from benchmarks.peers.server_process import ServerCommand

REPEATS = 3
_LEAST_CONTEXT = 16_384


class LlamaCpp:
    """One model file under llama.cpp's programs; every measurement is a process of its own."""

    def __init__(self, programs: Path, gguf: Path, threads: int) -> None:
        self._programs = programs
        self._gguf = gguf
        self._threads = str(threads)

    def rate(self, case: Case) -> float:
        """Tokens a second, as `case` counts them."""
        if case.counts == "output":
            return self._batched(case)
        if case.counts == "prompt":
            sizes = ["-p", str(case.prompt), "-n", "0"]
        else:  # its answer begins with a token of its own choice, behind a prompt one shorter
            sizes = ["-p", "0", "-n", str(case.output), "-d", str(case.prompt - 1)]
        told = json.loads(self._run("llama-bench", "-t", self._threads, *sizes, "-r", str(REPEATS), "-o", "json"))
        rate: float = told[0]["avg_ts"]
        return rate

    def _batched(self, case: Case) -> float:
        sizes = ["-npp", str(case.prompt), "-ntg", str(case.output), "-npl", str(case.streams), "-c", _context(case)]
        if case.shared:
            sizes.append("-pps")  # it can share a prompt only as a whole, which is less work than the others have
        threads = ["-t", self._threads, "-tb", self._threads]
        lines = self._run("llama-batched-bench", *threads, *sizes, "--output-format", "jsonl").splitlines()
        told = json.loads(next(line for line in lines if line.startswith("{")))
        return case.rate(told["t_pp"], told["t"])

    def server(self, case: Case, port: int) -> ServerCommand:
        """As many slots as there are streams; each keeps its last prompt where a case is about shared prefixes."""
        threads = ["-t", self._threads, "-tb", self._threads]
        slots = ["-np", str(case.streams), "-c", _context(case), "--port", str(port)]
        caching = ["--cache-prompt"] if case.shared else ["--no-cache-prompt", "--cache-ram", "0"]
        command = [str(self._programs / "llama-server"), "-m", str(self._gguf), *threads, *slots, *caching]
        return ServerCommand(command, model_name="model")

    def _run(self, program: str, *options: str) -> str:
        command = [str(self._programs / program), "-m", str(self._gguf), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout


def _context(case: Case) -> str:
    """Of all streams together."""
    return str(max(_LEAST_CONTEXT, case.streams * (case.prompt + case.output)))


def requantized(programs: Path, gguf: Path, kind: str, folder: Path) -> Path:
    """The file's weights in another type, made when it is not there yet."""
    target = folder / f"{gguf.stem}.{kind}.gguf"
    if not target.exists():
        command = [str(programs / "llama-quantize"), "--allow-requantize", str(gguf), str(target), kind]
        subprocess.run(command, check=True, capture_output=True)
    return target
