"""SamplingState: everything that decides a running sequence's tokens, on the device, at its stable row.

It is filled at admission and goes on by itself (`append`), so a step costs no work per sequence on the host. A
sequence admitted again, after a preemption or in another engine, has the same state as one that never left.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from quire.core.sampling_params import SamplingParams
from quire.ops.upload import upload
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.grammar.masks import GrammarMasks
from quire.sampling.mode import SamplingMode, is_random, num_reported, sampling_mode
from quire.sampling.processors.allowed_tokens import AllowedTokens
from quire.sampling.processors.bad_words import BadWords
from quire.sampling.processors.base import LogitsProcessor, Newcomer
from quire.sampling.processors.logit_bias import LogitBias
from quire.sampling.processors.min_tokens import MinTokens
from quire.sampling.processors.penalties import Penalties
from quire.sampling.seeds import seed_for
from quire.sampling.token_ids import check_token_ids


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How the rows of one batch draw their tokens; every tensor is [n]."""

    temperature: Tensor
    top_p: Tensor
    min_p: Tensor
    top_k: Tensor
    seed: Tensor
    stream: Tensor


class SamplingState:
    """One row per running sequence, 0 to `max_rows` - 1. `extra` processors go behind the built-in ones."""

    def __init__(
        self,
        max_rows: int,
        vocab_size: int,
        device: torch.device,
        engine_seed: int = 0,
        extra: Sequence[LogitsProcessor] = (),
        grammar_cache: GrammarCache | None = None,
    ) -> None:
        """`grammar_cache` has the grammars of sequences with structured output; without it there must be none."""
        self.vocab_size = vocab_size
        self._engine_seed = engine_seed
        self._params: dict[int, SamplingParams] = {}
        self._mode: SamplingMode | None = None
        self._numbers = torch.zeros((max_rows, 3), device=device)
        """By row: temperature, top-p, min-p."""
        self._integers = torch.zeros((max_rows, 3), dtype=torch.int64, device=device)
        """By row: top-k, seed, stream (the sequence's index in its request)."""
        self.grammars = GrammarMasks(max_rows, vocab_size, device, grammar_cache)
        self._processors: tuple[LogitsProcessor, ...] = (
            self.grammars,
            AllowedTokens(max_rows, vocab_size, device),
            BadWords(max_rows, device),
            MinTokens(max_rows, vocab_size, device),
            LogitBias(max_rows, device),
            Penalties(max_rows, vocab_size, device),
            *extra,
        )

    @property
    def mode(self) -> SamplingMode:
        """What the admitted sequences ask of a step."""
        if self._mode is None:
            self._mode = sampling_mode(self._params.values(), self.vocab_size)
        return self._mode

    def active_processors(self) -> list[LogitsProcessor]:
        """Those that some admitted sequence uses, in the order in which they change logits."""
        return [processor for processor in self._processors if processor.is_active]

    @property
    def has_processors_besides_grammars(self) -> bool:
        return any(processor is not self.grammars for processor in self.active_processors())

    def num_logprobs(self, row: int) -> int | None:
        """How many of the most likely tokens a row reports beside the drawn one; None where it reports nothing."""
        params = self._params.get(row)
        return None if params is None else num_reported(params)

    def named_tokens(self, row: int) -> tuple[int, ...]:
        """Tokens whose logprobs a row reports however unlikely they are."""
        params = self._params.get(row)
        return () if params is None else params.logprob_token_ids

    def admit(
        self,
        row: int,
        params: SamplingParams,
        *,
        request_id: str,
        index: int,
        prompt: Sequence[int],
        output: Sequence[int] = (),
        stop_ids: Iterable[int] = (),
        bad_words: Sequence[Sequence[int]] = (),
    ) -> None:
        """Give a free row to sequence `index` of a request; `output` is what it has already drawn.

        `stop_ids` are all tokens that end it, `bad_words` the parameters' words as tokens. Raises InvalidRequest, and
        changes nothing, when a token id has no logit.
        """
        assert row not in self._params, f"row {row} is taken"
        check_token_ids(params, self.vocab_size, bad_words)
        seed = seed_for(request_id, self._engine_seed) if params.seed is None else params.seed
        temperature = params.temperature if is_random(params) else 0.0
        numbers = (temperature, params.top_p, params.min_p)
        self._numbers[row] = upload(numbers, torch.float32, self._numbers.device)
        self._integers[row] = upload((params.top_k, seed, index), torch.int64, self._integers.device)
        newcomer = Newcomer(params, prompt, output, stop_ids, bad_words)
        for processor in self._processors:
            processor.admit(row, newcomer)
        self._params[row] = params
        self._mode = None

    def release(self, row: int) -> None:
        """Free a row; nothing happens where it is free."""
        self._params.pop(row, None)
        self._mode = None
        for processor in self._processors:
            processor.release(row)

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        """The tokens just drawn for these rows, each row at most once; both int64 [n]."""
        for processor in self.active_processors():
            processor.append(rows, tokens)

    def append_several(self, tokens: Sequence[tuple[int, Sequence[int]]]) -> None:
        """By row, each at most once: tokens that follow what was drawn, in order."""
        if not self.has_processors_besides_grammars:
            return  # grammars are told elsewhere
        for number in range(max(len(each) for _, each in tokens)):
            nth = [(row, each[number]) for row, each in tokens if number < len(each)]
            self.append(*upload(nth, torch.int64, self._integers.device).unbind(1))

    def settings(self, rows: Tensor) -> DrawSettings:
        temperature, top_p, min_p = self._numbers[rows].unbind(1)
        top_k, seed, stream = self._integers[rows].unbind(1)
        return DrawSettings(temperature, top_p, min_p, top_k, seed, stream)
