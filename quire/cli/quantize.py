"""`quire quantize`: a model's weights in 8 or 4 bits, as a folder or a GGUF file."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from quire.config.sizes import decimal_size
from quire.quantize.options import FOLDERS, GGUF, read_options

Model = Annotated[str, Parameter(help="A folder, a .gguf file, a hub id, or smollm2 for SmolLM2-135M-Instruct.")]
Out = Annotated[Path, Parameter(help="Where to write it: a folder, or a name that ends with .gguf.")]
Scheme = Annotated[
    str, Parameter(help=f"As a compressed-tensors folder: {', '.join(FOLDERS)}. As a GGUF file: {', '.join(GGUF)}.")
]
Method = Annotated[
    str | None,
    Parameter(
        help="rtn (round to nearest), gptq (fp8, int8, int4) or awq (int8, int4), which calibrate. Unset: gptq, or rtn "
        "for GGUF files."
    ),
]
GroupSize = Annotated[
    int | None,
    Parameter(
        help="Columns of int4 that share a scale; -1: whole rows. Unset: 128, or 64 or 32 where 128 does not divide."
    ),
]
Asymmetric = Annotated[bool, Parameter(negative="", help="Give every group of int4 a zero point.")]
ActOrder = Annotated[bool, Parameter(help="Let gptq begin with the columns that matter most.")]
Ignore = Annotated[
    tuple[str, ...],
    Parameter(
        help="A module that stays in 16 bits, or a pattern after re:; may be given several times. Unset: lm_head, the "
        "output head."
    ),
]
Calibration = Annotated[
    Path | None, Parameter(help="A text or .jsonl file for gptq and awq to calibrate on. Unset: one that quire ships.")
]
Device = Annotated[Literal["auto", "cpu", "cuda"], Parameter(help="What computes.")]
Perplexity = Annotated[bool, Parameter(help="Measure the perplexity on a held-out text, before and after.")]
Revision = Annotated[str | None, Parameter(help="Branch, tag or commit of a hub id. Unset: its main branch.")]


def quantize(
    model: Model,
    out: Out,
    *,
    scheme: Scheme,
    method: Method = None,
    group_size: GroupSize = None,
    asymmetric: Asymmetric = False,
    act_order: ActOrder = True,
    ignore: Ignore = ("lm_head",),
    calibration: Calibration = None,
    device: Device = "auto",
    perplexity: Perplexity = True,
    revision: Revision = None,
) -> int:
    """Write a model's weights in 8 or 4 bits. A run that was stopped goes on if it is given again."""
    options = read_options(
        scheme,
        method=method,
        group_size=group_size,
        symmetric=not asymmetric,
        act_order=act_order,
        ignore=ignore,
        calibration=calibration,
    )
    from quire.quantize.run import quantize as run

    done = run(model, out, options, revision=revision, device=device, measure=perplexity, report=_show)
    _show("", 0, 0)
    print(f"{options.scheme} in {done.path} ({decimal_size(done.num_bytes)})")
    if done.before is not None and done.after is not None:
        print(done.after.beside(done.before))
    return 0


def _show(what: str, done: int, total: int) -> None:
    """One line on a terminal that each call writes anew; an empty one wipes it out."""
    if sys.stderr.isatty():
        line = f"{what} … {done} of {total}" if what else ""
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
