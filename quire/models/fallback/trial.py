"""The trial of a fallback at start: a few dummy tokens through the model's own attention and through quire's.

It finds out how each layer attends and whether the two agree when prompts are cut up and mixed. What it cannot vouch
for is refused: a fallback gives the numbers of transformers or does not start.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.layers.batch import Batch, KVLayer
from quire.models.fallback.attention import OBSERVED, OWN, NotForFallback
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.fallback.observed import ObservedStep
from quire.models.fallback.refused import refusal
from quire.spec.model import ModelSpec

_LENGTHS = (13, 7)
_STEPS: tuple[tuple[tuple[int, int, int], ...], ...] = (
    ((0, 0, 8), (1, 0, 4)),
    ((1, 4, 5), (0, 8, 12)),
    ((0, 12, 13), (1, 5, 6)),
    ((1, 6, 7),),
)
"""Steps of (sequence, from, to): prompts in chunks, a decode beside a chunk, decodes together and alone."""
_BLOCK_SIZE = 4
_TOLERANCE = {torch.float32: 1e-3}
_ROUGH = 0.1
"""Relative, of the middle token: what rounding makes of 16 bits in deep models stays well below."""
_FAULTS = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NotImplementedError, RuntimeError),
    *(TypeError, ValueError),
)
"""What comes of a model that was not made for this."""


def try_out(model: FallbackDecoder, causal: Any, named: str, device: torch.device) -> None:
    """Leaves the model ready to run, or raises a CheckpointError that says why it cannot; `named` says which it is."""
    try:
        with torch.inference_mode():
            _try_out(model, causal, device)
    except NotForFallback as error:
        raise CheckpointError(refusal(named, str(error))) from None
    except _FAULTS as error:
        said = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        raise CheckpointError(
            refusal(named, f"transformers' code does not run with quire's attention ({said})")
        ) from error


def _try_out(model: FallbackDecoder, causal: Any, device: torch.device) -> None:
    trial = _Trial.of(model.spec, device, causal.dtype)
    causal.set_attn_implementation("eager")
    wanted = [causal(ids[None], use_cache=False).logits[0] for ids in trial.sequences]
    causal.set_attn_implementation(OBSERVED)
    ids = trial.sequences[0]
    observed = ObservedStep(model.spec, trial.batch(((0, 0, len(ids)),)))
    whole = model.hidden_states(ids, torch.arange(len(ids), device=device), observed)
    model.attend_with(observed.layers())
    _compare(model.logits(whole), wanted[0], causal.dtype, "a whole prompt")
    causal.set_attn_implementation(OWN)
    found = [[Tensor()] * length for length in _LENGTHS]
    for step in _STEPS:
        rows = iter(trial.run(model, step))
        for sequence, begin, end in step:
            for place in range(begin, end):
                found[sequence][place] = next(rows)
    for pieces, logits, (_, _, first) in zip(found, wanted, _STEPS[0], strict=True):
        # apart, as the middle of all would not tell of a few that continue something
        for part in (slice(first), slice(first, None)):
            _compare(torch.stack(pieces[part]), logits[part], causal.dtype, "prompts in pieces")
    model.can_be_captured = device.type == "cuda" and _never_waits(model, trial)


def _compare(found: Tensor, wanted: Tensor, dtype: torch.dtype, what: str) -> None:
    """`dtype`: what the model computes in."""
    found, wanted = found.float(), wanted.float()
    if not wanted.isfinite().all():
        raise NotForFallback("it gives numbers that are not finite; try --dtype bfloat16 or float32")
    spread = (wanted - wanted.mean(-1, keepdim=True)).norm(dim=-1).clamp_min(1e-6)
    errors = (found - wanted).norm(dim=-1) / spread
    error = errors.max() if dtype in _TOLERANCE else errors.median()
    if not error <= _TOLERANCE.get(dtype, _ROUGH):
        raise NotForFallback(f"its logits of {what} are not transformers' own (they differ by {float(error):.1%})")


def _never_waits(model: FallbackDecoder, trial: "_Trial") -> bool:
    """Whether nothing in a decode has to wait for the device, as a graph demands."""
    mode = torch.cuda.get_sync_debug_mode()
    inputs = trial.inputs(_STEPS[2])
    hidden = model(*inputs)
    model.logits(hidden)  # what is done only once may wait
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype each time it is set
        torch.cuda.set_sync_debug_mode("error")
        try:
            model.logits(model(*inputs))
        except RuntimeError:
            return False
        finally:
            torch.cuda.set_sync_debug_mode(mode)
    return True


@dataclass(frozen=True, slots=True)
class _Trial:
    """Sequences of dummy tokens and a cache for them."""

    sequences: list[Tensor]
    kv: list[KVLayer]
    tables: Tensor

    @classmethod
    def of(cls, spec: ModelSpec, device: torch.device, dtype: torch.dtype) -> "_Trial":
        generator = torch.Generator().manual_seed(0)
        sequences = [torch.randint(spec.vocab_size, (n,), generator=generator).to(device) for n in _LENGTHS]
        each = -(-max(_LENGTHS) // _BLOCK_SIZE)
        shape = (2, each * len(_LENGTHS), _BLOCK_SIZE, spec.num_kv_heads, spec.head_dim)
        caches = [torch.zeros(shape, dtype=dtype, device=device) for _ in spec.layers]
        kv = [KVLayer(keys, values, 0) for keys, values in caches]
        blocks = torch.arange(shape[1], device=device).flip(0)  # nobody's blocks lie in order
        return cls(sequences, kv, blocks.view(len(_LENGTHS), each))

    def inputs(self, step: tuple[tuple[int, int, int], ...]) -> tuple[Tensor, Tensor, Batch]:
        ids = torch.cat([self.sequences[sequence][begin:end] for sequence, begin, end in step])
        return ids, self._positions(step), self.batch(step)

    def run(self, model: FallbackDecoder, step: tuple[tuple[int, int, int], ...]) -> Tensor:
        """Logits of all tokens of the step."""
        return model.logits(model(*self.inputs(step)))

    def batch(self, step: tuple[tuple[int, int, int], ...]) -> Batch:
        device = self.tables.device
        owners = [sequence for sequence, begin, end in step for _ in range(begin, end)]
        positions, tables = self._positions(step), self.tables
        counts = torch.tensor([0, *(end - begin for _, begin, end in step)], device=device)
        lengths = torch.tensor([end for *_, end in step], device=device)
        slots = tables[owners, positions // _BLOCK_SIZE] * _BLOCK_SIZE + positions % _BLOCK_SIZE
        return Batch(
            query_starts=counts.cumsum(0),
            lengths=lengths,
            lengths_for_angles=lengths.repeat_interleave(counts[1:]),
            tables=[tables[[sequence for sequence, *_ in step]]],
            slots=[slots],
            kv=self.kv,
        )

    def _positions(self, step: tuple[tuple[int, int, int], ...]) -> Tensor:
        return torch.cat([torch.arange(begin, end, device=self.tables.device) for _, begin, end in step])
