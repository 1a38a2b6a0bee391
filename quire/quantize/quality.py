"""What quantizing costs: perplexity on a held-out text before and after; of encoders, how far embeddings turn."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from quire.models.loading.checkpoint import Checkpoint, open_checkpoint
from quire.quantize.layerwise import LayerwiseModel, Text
from quire.quantize.texts import held_out_pieces, held_out_sentences
from quire.text.tokenizer import Tokenizer

_LONGEST = 512


@dataclass(frozen=True, slots=True)
class Judged:
    """A model on the held-out text."""

    num_tokens: int
    perplexity: float | None
    """None: it is an encoder."""
    embeddings: Tensor | None = None
    """[texts, hidden] of an encoder: means over tokens."""

    def beside(self, before: "Judged") -> str:
        """A line that compares it with the model as it was."""
        if self.perplexity is None or before.perplexity is None:
            assert self.embeddings is not None
            assert before.embeddings is not None
            turned = functional.cosine_similarity(self.embeddings, before.embeddings)
            return (
                f"cosine similarity of embeddings of {len(turned)} held-out texts with those before: mean "
                f"{turned.mean():.5f}, least {turned.min():.5f}"
            )
        change = self.perplexity / before.perplexity - 1
        return (
            f"perplexity on {self.num_tokens:,} held-out tokens: {before.perplexity:.4f} before, "
            f"{self.perplexity:.4f} after ({change:+.2%})"
        )


def judge(
    checkpoint: Checkpoint, tokenizer: Tokenizer, device: torch.device, progress: Callable[[int], None]
) -> Judged:
    """`progress` is told each layer that is done."""
    spec = checkpoint.spec
    model = LayerwiseModel(spec, checkpoint, device)
    most = min(spec.max_position, _LONGEST)
    if spec.generates:
        pieces = held_out_pieces(tokenizer, most)
    else:
        pieces = [tokenizer.encode(text)[:most] for text in held_out_sentences()]
    texts = model.begin(pieces)
    for index in range(spec.num_layers):
        model.advance(model.layer(index, checkpoint, checkpoint.schemes), texts)
        progress(index + 1)
    if not spec.generates:
        return Judged(sum(map(len, pieces)), None, torch.stack([model.hidden(text).float().mean(0) for text in texts]))
    lost = [_lost(model, text, piece) for text, piece in zip(texts, pieces, strict=True)]
    count = sum(len(piece) - 1 for piece in pieces)
    return Judged(count, math.exp(sum(lost) / count))


def judge_written(path: Path, tokenizer: Tokenizer, device: torch.device, progress: Callable[[int], None]) -> Judged:
    """A model that quire has written."""
    return judge(open_checkpoint(path), tokenizer, device, progress)


def _lost(model: LayerwiseModel, text: Text, ids: list[int]) -> float:
    """The negative log-likelihood of all tokens but the first."""
    logits = model.logits(text)[:-1]
    target = torch.tensor(ids[1:], device=logits.device)
    return float(functional.cross_entropy(logits, target, reduction="sum"))
