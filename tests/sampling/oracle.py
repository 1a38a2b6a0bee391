"""The slow, obvious sampler: plain Python, one sequence at a time, one rule after the other, in double precision."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from quire.core.sampling_params import SamplingParams

NOTHING = -math.inf
WORD = 0xFFFFFFFF


@dataclass
class Case:
    """A sequence and the logits of its next token."""

    logits: list[float]
    params: SamplingParams
    prompt: list[int] = field(default_factory=lambda: [0])
    output: list[int] = field(default_factory=list)
    stop_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    index: int = 0

    @property
    def position(self) -> int:
        return len(self.prompt) + len(self.output)


def processed(case: Case) -> list[float]:
    """Logits after everything a request may ask for but temperature and filters."""
    params, logits = case.params, list(case.logits)
    for token in range(len(logits)):
        if params.allowed_token_ids is not None and token not in params.allowed_token_ids:
            logits[token] = NOTHING
        if any(word[-1] == token and ends_with(case.output, word[:-1]) for word in case.bad_words):
            logits[token] = NOTHING
        if len(case.output) < params.min_tokens and token in case.stop_ids:
            logits[token] = NOTHING
        logits[token] += (params.logit_bias or {}).get(token, 0.0)
        logits[token] = penalised(logits[token], token, case)
    return logits


def ends_with(output: Sequence[int], tail: Sequence[int]) -> bool:
    return len(output) >= len(tail) and list(output[len(output) - len(tail) :]) == list(tail)


def penalised(logit: float, token: int, case: Case) -> float:
    params, count = case.params, Counter(case.output)[token]
    if count or token in case.prompt:
        logit = logit / params.repetition_penalty if logit > 0 else logit * params.repetition_penalty
    return logit - params.frequency_penalty * count - params.presence_penalty * (count > 0)


def filtered(logits: list[float], params: SamplingParams) -> list[float]:
    """Scaled logits with dropped tokens at -inf; the temperature is not 0."""
    scaled = [(logit - max(logits)) / params.temperature for logit in logits]
    scaled = [each if math.exp(each) >= params.min_p else NOTHING for each in scaled]
    if 0 < params.top_k < len(scaled):
        kth = sorted(scaled, reverse=True)[params.top_k - 1]
        scaled = [each if each >= kth else NOTHING for each in scaled]
    if params.top_p < 1:
        mass = sum(map(math.exp, scaled))
        likelier = [sum(math.exp(other) for other in scaled if other > each) for each in scaled]
        scaled = [
            each if before < params.top_p * mass else NOTHING for each, before in zip(scaled, likelier, strict=True)
        ]
    return scaled


def probabilities(case: Case) -> list[float]:
    weights = [math.exp(each) for each in filtered(processed(case), case.params)]
    return [weight / sum(weights) for weight in weights]


def scores(case: Case) -> list[float]:
    """What the drawn token maximises."""
    if case.params.temperature == 0:
        return processed(case)
    kept = filtered(processed(case), case.params)
    seed = case.params.seed
    assert seed is not None
    return [score + gumbel(seed, case.index, case.position, token) for token, score in enumerate(kept)]


def gumbel(seed: int, stream: int, position: int, token: int) -> float:
    words = philox((token // 4, position, stream, 0), (seed & WORD, (seed >> 32) & WORD), 7)
    return -math.log(-math.log1p(-min((words[token % 4] + 0.5) / 2**32, 1 - 2**-24)))


def philox(counter: Sequence[int], key: Sequence[int], rounds: int) -> tuple[int, int, int, int]:
    (a, b, c, d), (k, m) = counter, key
    for _ in range(rounds):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (second >> 32) ^ b ^ k, second & WORD, (first >> 32) ^ d ^ m, first & WORD
        k, m = (k + 0x9E3779B9) & WORD, (m + 0xBB67AE85) & WORD
    return a, b, c, d
