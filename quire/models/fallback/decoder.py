"""FallbackDecoder: a causal language model whose layers are transformers' own, run like quire's families."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from quire.layers.attention import PagedAttention
from quire.layers.batch import Batch
from quire.models.fallback.attention import STEP, PagedStep, Step
from quire.models.gate import LayerGate
from quire.ops.lora_tensors import AdapterRows
from quire.spec.model import ModelSpec

_HIDDEN = "quire_hidden"
"""The keyword argument that brings hidden states to the output head alone."""


class FallbackDecoder(nn.Module):
    """Called as a LanguageModel is. All tokens of a step lie in one row, each with its position."""

    def __init__(self, causal: nn.Module, spec: ModelSpec) -> None:
        """`causal` is a transformers model with an output head, with all of its weights; `spec` is its outline."""
        super().__init__()
        self.spec = spec
        self._causal = causal
        self.layers = nn.ModuleList()
        """How each layer attends."""
        self.ropes = nn.ModuleList()
        """None: the model turns its heads itself."""
        self._body: Any = getattr(causal, "base_model")  # noqa: B009 (typed as a tensor or a module otherwise)
        self._body_forward: Any = self._body.forward
        self._output_type: Any = None
        self._body.forward = self._body_or_hidden
        self.gate = LayerGate()
        """Always open: the weights are all there before the first step."""
        self.can_be_captured = False
        """Whether a decode can be captured in a CUDA graph: nothing in it waits for the device."""

    def attend_with(self, attentions: Sequence[PagedAttention]) -> None:
        """One a layer, in their order."""
        self.layers = nn.ModuleList(attentions)

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        """Hidden states [tokens, hidden] after the last norm, of those that the batch wants."""
        layers = [layer for layer in self.layers if isinstance(layer, PagedAttention)]
        hidden = self.hidden_states(input_ids, positions, PagedStep(batch, layers))
        return hidden if batch.output_rows is None else hidden.index_select(0, batch.output_rows)

    def hidden_states(self, input_ids: Tensor, positions: Tensor, step: Step) -> Tensor:
        """Of all tokens."""
        given = {STEP: step}
        output = self._body(input_ids[None], position_ids=positions[None], use_cache=False, return_dict=True, **given)
        self._output_type = type(output)
        hidden: Tensor = output[0]
        return hidden[0]

    def logits(self, hidden: Tensor, prompts: range = range(0), adapters: AdapterRows | None = None) -> Tensor:
        """[rows, vocabulary], with everything that the model does to its logits after the head."""
        assert adapters is None, "adapters are added to quire's own families"
        given = {_HIDDEN: hidden[None]}
        rows = torch.zeros((1, hidden.shape[0]), dtype=torch.int64, device=hidden.device)
        output = self._causal(rows, use_cache=False, return_dict=True, **given)
        logits: Tensor = output.logits
        return logits[0]

    def classify(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """Never asked for: an outline has no classifier."""
        raise NotImplementedError("the fallback generates and embeds")

    def _body_or_hidden(self, *given: Any, **named: Any) -> Any:
        """The layers, unless their result is there already: the model's own head then sees it and nothing else runs."""
        hidden = named.pop(_HIDDEN, None)
        if hidden is None:
            return self._body_forward(*given, **named)
        return self._output_type(last_hidden_state=hidden)
