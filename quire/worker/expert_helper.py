"""ExpertHelper: what a rank does for the tokens of others, where experts are all that is spread over ranks."""

import torch

from quire.core.plan import StepPlan
from quire.models.experts_mlp import ExpertsMlp
from quire.models.language_model import LanguageModel
from quire.parallel.token_exchange import TokenExchange


class ExpertHelper:
    """Of one rank. In a step without rows of its own it runs no layer but the experts, which others wait for."""

    def __init__(self, model: LanguageModel, exchange: TokenExchange, dtype: torch.dtype, device: torch.device) -> None:
        """`dtype` is what activations are computed in."""
        self._exchange = exchange
        self._mlps = [part for part in model.modules() if isinstance(part, ExpertsMlp)]
        self._no_tokens = torch.empty((0, model.spec.hidden_size), dtype=dtype, device=device)

    def begin(self, plan: StepPlan) -> None:
        """A step begins. One whose plan says nothing of other ranks is the same on all: the largest, at the start."""
        counts = plan.rank_tokens or [plan.num_tokens] * self._exchange.size
        self._exchange.begin(counts)
        if not plan.rows and any(counts):
            for mlp in self._mlps:
                mlp.exchanged(self._no_tokens)
