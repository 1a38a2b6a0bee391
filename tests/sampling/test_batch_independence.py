"""The same sequence gives the same tokens alone, in any company, in any row, and after any number of preemptions."""

import random
from typing import Any

import pytest
import torch

from quire.core.sampling_params import SamplingParams
from quire.sampling.sampler import Sampler
from quire.sampling.state import SamplingState
from tests.sampling.oracle import Case
from tests.sampling.rows import CPU, admit, sample


def mixed_params(rng: random.Random, vocab_size: int) -> SamplingParams:
    def maybe(value: Any, otherwise: Any) -> Any:
        return value if rng.random() < 0.4 else otherwise

    return SamplingParams(
        seed=maybe(rng.getrandbits(63), None),
        temperature=rng.choice([0.0, 0.6, 1.0, 1.5]),
        top_k=maybe(rng.choice([3, 50, 2000]), 0),
        top_p=maybe(rng.uniform(0.1, 0.99), 1.0),
        min_p=maybe(0.05, 0.0),
        presence_penalty=maybe(0.7, 0.0),
        frequency_penalty=maybe(0.3, 0.0),
        repetition_penalty=maybe(1.2, 1.0),
        logit_bias=maybe({rng.randrange(vocab_size): 3.5 for _ in range(5)}, None),
        allowed_token_ids=maybe(tuple(rng.sample(range(vocab_size), vocab_size // 2)), None),
        min_tokens=maybe(4, 0),
        logprobs=maybe(3, None),
    )


def mixed_case(rng: random.Random, vocab_size: int, logits: list[float]) -> Case:
    def tokens(count: int) -> list[int]:
        return [rng.randrange(vocab_size) for _ in range(count)]

    return Case(
        logits=logits,
        params=mixed_params(rng, vocab_size),
        prompt=tokens(rng.randint(1, 20)),
        output=[],
        stop_ids=tuple(tokens(2)),
        bad_words=tuple(tuple(tokens(rng.randint(1, 2))) for _ in range(rng.choice([0, 0, 3]))),
        index=rng.randrange(3),
    )


@pytest.mark.parametrize(("vocab_size", "threads"), [(1009, 1), (8209, 2)])
def test_alone_and_in_a_batch_of_64_in_any_order(vocab_size: int, threads: int) -> None:
    torch.set_num_threads(threads)  # a batch is split over them, a row alone is not
    rng = random.Random(vocab_size)
    table = torch.randn(64, vocab_size, generator=torch.Generator().manual_seed(vocab_size)) * 3
    batch = [mixed_case(rng, vocab_size, row.tolist()) for row in table]
    together = sample(batch)
    assert together.logprobs is not None
    reported = together.logprobs.logprobs
    rows = rng.sample(range(80), 64)
    order = rng.sample(range(64), 64)
    shuffled = sample([batch[place] for place in order], rows)
    assert shuffled.tokens.tolist() == [int(together.tokens[place]) for place in order]
    for place in range(0, 64, 1 if vocab_size < 2000 else 9):
        alone = sample([batch[place]])
        assert int(alone.tokens) == int(together.tokens[place])
        if alone.logprobs is not None:
            assert torch.equal(alone.logprobs.logprobs[0], reported[place][: alone.logprobs.logprobs.shape[1]])


class Model:
    """Logits that depend on the last two tokens; `run` draws whole texts from them."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._table = torch.randn(2 * vocab_size, vocab_size, generator=torch.Generator().manual_seed(5)) * 2

    def logits(self, sequences: list[list[int]]) -> torch.Tensor:
        newest = torch.tensor([tokens[-1] for tokens in sequences])
        before = torch.tensor([tokens[-2] for tokens in sequences])
        return self._table[newest] + self._table[self.vocab_size + before]

    def run(self, cases: list[Case], steps: int, preempt: random.Random | None = None) -> list[list[int]]:
        """The texts; with `preempt`, sequences leave and come back to other rows again and again."""
        state = SamplingState(len(cases) + 3, self.vocab_size, CPU, engine_seed=11)
        history = torch.zeros(len(cases) + 4, max(len(case.prompt) for case in cases) + steps + 1, dtype=torch.int32)
        sampler = Sampler(state, history)
        rows = list(range(len(cases)))
        texts = [list(case.prompt) for case in cases]
        for row, case in zip(rows, cases, strict=True):
            admit(state, row, case, request_id=str(case.prompt))
        for _ in range(steps):
            if preempt is not None:
                self._move(state, cases, texts, rows, preempt)
            for row, text in zip(rows, texts, strict=True):
                history[row, : len(text)] = torch.tensor(text)
            places = torch.tensor(rows)
            positions = torch.tensor([len(text) for text in texts])
            sampled = sampler.sample(self.logits(texts), places, positions, state.mode)
            for text, token in zip(texts, sampled.tokens.tolist(), strict=True):
                text.append(token)
        return texts

    def _move(
        self, state: SamplingState, cases: list[Case], texts: list[list[int]], rows: list[int], rng: random.Random
    ) -> None:
        for place in rng.sample(range(len(cases)), len(cases) // 4):
            case, text = cases[place], texts[place]
            state.release(rows[place])
            rows[place] = rng.choice([row for row in range(len(cases) + 3) if row not in rows])
            resumed = Case([], case.params, case.prompt, text[len(case.prompt) :], case.stop_ids, case.bad_words)
            resumed.index = case.index
            admit(state, rows[place], resumed, request_id=str(case.prompt))


def test_same_text_alone_in_a_batch_of_64_and_after_preemptions() -> None:
    rng = random.Random(1)
    model = Model(61)
    cases = [mixed_case(rng, 61, []) for _ in range(64)]
    for case in cases:
        case.prompt = [0, *case.prompt]
    together = model.run(cases, 20)
    assert model.run(cases, 20, preempt=random.Random(2)) == together
    for place in range(0, 64, 5):
        assert model.run([cases[place]], 20) == [together[place]]


def test_another_seed_stream_or_position_gives_another_text() -> None:
    model = Model(61)
    one = Case([], SamplingParams(seed=5), prompt=[1, 2])
    other_seed = Case([], SamplingParams(seed=6), prompt=[1, 2])
    other_stream = Case([], SamplingParams(seed=5), prompt=[1, 2], index=1)
    shifted = Case([], SamplingParams(seed=5), prompt=[3, 1, 2])
    texts = [model.run([case], 30)[0][-30:] for case in (one, other_seed, other_stream, shifted, one)]
    assert texts[4] == texts[0]
    assert len({tuple(text) for text in texts}) == 4


def test_unseeded_requests_get_the_same_text_from_another_engine_of_the_same_seed() -> None:
    model = Model(61)
    cases = [Case([], SamplingParams(), prompt=[1, number]) for number in range(8)]
    texts = model.run(cases, 12)
    assert model.run(cases, 12) == texts
    assert len({tuple(text[2:]) for text in texts}) == 8
