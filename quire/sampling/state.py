"""SamplingState: everything that decides a running sequence's tokens, on the device, at its stable row.

It is filled at admission and goes on by itself, so a step costs no work per sequence on the host. A sequence admitted
again, after a preemption or in another engine, has the same state as one that never left.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quire.core.checks import MAX_LOGPROBS
from quire.core.sampling_params import SamplingParams
from quire.core.speech import SpeechVocabulary
from quire.ops.functional import count_tokens
from quire.ops.upload import upload
from quire.sampling.grammar.cache import GrammarCache
from quire.sampling.grammar.masks import GrammarMasks
from quire.sampling.grammar.unbound import UnboundGrammars
from quire.sampling.logits_processor import LogitsProcessor
from quire.sampling.mode import SamplingMode, is_random, num_reported, sampling_mode
from quire.sampling.newcomer import Newcomer
from quire.sampling.processor_rows import ProcessorRows
from quire.sampling.row_adjustments import RowAdjustments
from quire.sampling.seeds import seed_for
from quire.sampling.speech_rows import SpeechRows
from quire.sampling.token_ids import check_token_ids

_NOTHING_REPORTED = -1
Report = tuple[int, int, tuple[int, ...]]
"""Place in a batch, how many of the most likely tokens it reports, and the tokens that it names."""


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
    """One row per running sequence, 0 to `max_rows` - 1, and a spare one behind them that takes the likeliest token."""

    def __init__(
        self,
        max_rows: int,
        vocab_size: int,
        device: torch.device,
        engine_seed: int = 0,
        grammar_cache: GrammarCache | None = None,
        *,
        draws: bool = True,
        is_alone: bool = True,
        speech: SpeechVocabulary | None = None,
        processors: Mapping[str, type[LogitsProcessor]] | None = None,
    ) -> None:
        """`grammar_cache` has the grammars of sequences with structured output; without it there must be none.

        `draws`: tokens are drawn here; otherwise another rank does it, and only what is asked of a step matters.
        `is_alone`: no other rank has the same rows.
        `speech` is what the rules of transcripts go by, in models that write them; `processors` are logits processors
        that sequences may ask for.
        """
        self.vocab_size = vocab_size
        self.engine_seed = engine_seed
        self._params: dict[int, SamplingParams] = {}
        self._mode: SamplingMode | None = None
        self._reports: dict[int, tuple[int, tuple[int, ...]]] = {}
        """By row that reports logprobs: of how many likely tokens, and of which besides."""
        self._numbers = torch.zeros((max_rows + 1, 3), device=device)
        """By row: temperature, top-p, min-p."""
        self._integers = torch.zeros((max_rows + 1, 3), dtype=torch.int64, device=device)
        """By row: top-k, seed, stream (the sequence's index in its request)."""
        self.reported = torch.full((max_rows + 1,), _NOTHING_REPORTED, dtype=torch.int32, device=device)
        """By row: how many of the most likely tokens it reports beside the drawn one; negative: nothing."""
        self.named = torch.zeros((max_rows + 1, MAX_LOGPROBS), dtype=torch.int64, device=device)
        """By row: tokens whose logprobs it reports however unlikely they are; any tokens behind them."""
        self.speech = None if speech is None else SpeechRows(speech, max_rows + 1, vocab_size, device)
        self.processors = ProcessorRows(processors or {}, max_rows, vocab_size, device)
        self.adjustments = RowAdjustments(max_rows, vocab_size, device)
        asked = self.adjustments.tensors
        masks = (asked.masks, asked.is_masked, vocab_size, grammar_cache)
        self.grammars = GrammarMasks(*masks, is_alone=is_alone) if draws else UnboundGrammars(*masks)

    @property
    def mode(self) -> SamplingMode:
        """What the admitted sequences ask of a step."""
        if self._mode is None:
            adjusts = self.adjustments.are_asked_for or self.grammars.is_active
            self._mode = sampling_mode(self._params.values(), self.vocab_size, adjusts=adjusts)
        return self._mode

    @property
    def mode_of_drafts(self) -> SamplingMode:
        """The same, of a step that verifies drafts."""
        return replace(self.mode, penalizes=self.adjustments.penalize, cuts_drafts=self.grammars.is_active)

    def reports(self, rows: Sequence[int]) -> list[Report]:
        """Those of a batch of rows that report logprobs of what they draw."""
        known = self._reports
        return [(place, *known[row]) for place, row in enumerate(rows) if row in known] if known else []

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
        device = self._numbers.device
        seed = seed_for(request_id, self.engine_seed) if params.seed is None else params.seed
        temperature = params.temperature if is_random(params) else 0.0
        self._numbers[row] = upload((temperature, params.top_p, params.min_p), torch.float32, device)
        self._integers[row] = upload((params.top_k, seed, index), torch.int64, device)
        self._admit_to_reports(row, params)
        newcomer = Newcomer(params, prompt, output, stop_ids, bad_words)
        self.adjustments.admit(row, newcomer)
        self.processors.admit(row, newcomer)
        if params.speech is not None and self.speech is not None:
            self.speech.admit(row, params.speech, len(prompt))
        self.grammars.admit(row, newcomer)
        self._params[row] = params
        self._mode = None

    def release(self, row: int) -> None:
        """Free a row, also one whose admission threw half-way; nothing happens where it is free."""
        params = self._params.pop(row, None)
        self._mode = None
        if self.speech is not None and params is not None and params.speech is not None:
            self.speech.release(row)
        if self._reports.pop(row, None) is not None:
            self.reported[row].fill_(_NOTHING_REPORTED)
        self.adjustments.release(row)
        self.processors.release(row)
        self.grammars.release(row)

    def expire(self, fewest: Callable[[Iterable[int]], Mapping[int, int]]) -> None:
        """Forget what is satisfied in sequences that have at least so many tokens: `fewest` tells it of some rows."""
        adjusted, thought = self.adjustments.expire(fewest), self.grammars.expire(fewest)
        if adjusted or thought:
            self._mode = None

    def append(self, rows: Tensor, tokens: Tensor) -> None:
        """The tokens just drawn for these rows, each row at most once; both int64 [n]."""
        count_tokens(self.adjustments.tensors.counts, rows, tokens)

    def append_several(self, tokens: Sequence[tuple[int, Sequence[int]]]) -> None:
        """By row, each at most once: tokens that follow what was drawn, in order."""
        if not self.adjustments.are_asked_for:
            return
        for number in range(max(len(each) for _, each in tokens)):
            nth = [(row, each[number]) for row, each in tokens if number < len(each)]
            self.append(*upload(nth, torch.int64, self._integers.device).unbind(1))

    def settings(self, rows: Tensor) -> DrawSettings:
        temperature, top_p, min_p = self._numbers[rows].unbind(1)
        top_k, seed, stream = self._integers[rows].unbind(1)
        return DrawSettings(temperature, top_p, min_p, top_k, seed, stream)

    def _admit_to_reports(self, row: int, params: SamplingParams) -> None:
        count, names = num_reported(params), params.logprob_token_ids
        if count is None:
            return
        self._reports[row] = count, names
        self.reported[row].fill_(count)
        if names:
            self.named[row, : len(names)] = upload(names, torch.int64, self.named.device)
