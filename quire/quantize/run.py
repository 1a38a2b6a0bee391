"""One run of `quire quantize`: open, judge, write, judge again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from quire.core.errors import ConfigError
from quire.quantize.folder import write_folder
from quire.quantize.gguf.write import write_gguf
from quire.quantize.options import QuantizeOptions
from quire.quantize.quality import Judged, judge, judge_written
from quire.quantize.source import open_source
from quire.text.load import load_tokenizer

Report = Callable[[str, int, int], None]
"""Told what is being done, and how many of how many layers are."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has written, and what it costs."""

    path: Path
    num_bytes: int
    before: Judged | None
    after: Judged | None


@torch.inference_mode()
def quantize(
    model: str,
    out: Path,
    options: QuantizeOptions,
    *,
    revision: str | None = None,
    device: str = "auto",
    measure: bool = True,
    report: Report = lambda *_: None,
) -> Outcome:
    """Write a model anew. `out` must not be there; what a run that was stopped has written is taken up."""
    if out.exists():
        raise ConfigError(f"{out} is there already; give another name, or remove it.")
    if options.is_gguf != (out.suffix == ".gguf"):
        wanted = "a file whose name ends with .gguf" if options.is_gguf else "a folder, without .gguf at its end"
        raise ConfigError(f"--scheme {options.scheme} writes {wanted}, and OUT is {out}.")
    where = _device(device)
    source = open_source(model, revision)
    tokenizer = load_tokenizer(source.path)
    layers = source.spec.num_layers
    before = after = None
    if measure:
        before = judge(source.checkpoint, tokenizer, where, lambda done: report("Judging before", done, layers))
    writing = f"Quantizing to {options.scheme}"
    if options.is_gguf:
        write_gguf(source, tokenizer, out, options.scheme, lambda done, total: report(writing, done, total))
    else:
        write_folder(source, tokenizer, out, options, where, lambda done, total: report(writing, done, total))
    if measure:
        after = judge_written(out, tokenizer, where, lambda done: report("Judging after", done, layers))
    files = out.rglob("*") if out.is_dir() else [out]
    return Outcome(out, sum(file.stat().st_size for file in files if file.is_file()), before, after)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device is cuda, but torch finds no GPU here; leave it out, or give cpu.")
    return torch.device(name)
