"""Beam search against transformers' on a tiny random model, and rule by rule on made-up offers."""

import math
from typing import Any

import pytest
import torch

from quire.sampling.beam import Beam, BeamSearch, EarlyStopping, Finished

EOS = 3
LONGEST = 9
RUNS: list[tuple[list[int], int, list[int]]] = [([5, 9, 10], 3, [EOS]), ([0, 2, 2, 7], 4, [EOS, 8]), ([1], 2, [])]


@pytest.fixture(scope="module")
def model() -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=13,
        n_positions=64,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
        initializer_range=0.4,  # sharp enough that beams end at different lengths
    )
    return transformers.GPT2LMHeadModel(config).eval()


def offers(model: Any, prompt: list[int], beams: list[Beam], count: int) -> list[list[tuple[int, float]]]:
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *beam.tokens] for beam in beams])).logits[:, -1].float()
    best = logits.log_softmax(dim=-1).topk(min(count, logits.shape[-1]))
    return [
        list(zip(tokens, values, strict=True))
        for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def run(
    model: Any, prompt: list[int], width: int, stop_ids: list[int], length_penalty: float, early: EarlyStopping
) -> list[Finished]:
    search = BeamSearch(width, LONGEST, stop_ids, length_penalty, early)
    while not search.is_done:
        search.advance(offers(model, prompt, search.beams, search.num_candidates))
    return search.finished


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize("length_penalty", [1.0, 0.0, -0.7, 2.0])
@pytest.mark.parametrize(("prompt", "width", "stop_ids"), RUNS)
def test_equals_transformers(
    model: Any,
    prompt: list[int],
    early_stopping: EarlyStopping,
    length_penalty: float,
    width: int,
    stop_ids: list[int],
) -> None:
    found = run(model, prompt, width, stop_ids, length_penalty, early_stopping)
    expected = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
        num_beams=width,
        num_return_sequences=width,
        max_new_tokens=LONGEST,
        do_sample=False,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        eos_token_id=stop_ids or None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    assert [each.score for each in found] == pytest.approx(expected.sequences_scores.tolist(), rel=1e-5)
    texts = expected.sequences[:, len(prompt) :].tolist()
    assert [list(each.tokens) for each in found] == [
        text[: len(each.tokens)] for text, each in zip(texts, found, strict=True)
    ]


def test_the_tiny_model_ends_beams_in_every_way(model: Any) -> None:
    """Otherwise the comparison above would show little."""
    results = [[run(model, *each, 2.0, early) for early in (True, False, "never")] for each in RUNS]
    lengths = {len(each.tokens) for by_rule in results for finished in by_rule for each in finished}
    assert {2, 3, LONGEST} <= lengths
    assert any(eager != patient for eager, _, patient in results)


def test_parents_say_which_beam_goes_on() -> None:
    search = BeamSearch(2, 10, [EOS])
    first = search.advance([[(7, -0.1), (8, -1.0), (9, -3.0), (10, -4.0)]])
    assert first == [Beam((7,), -0.1, 0), Beam((8,), -1.0, 0)]
    second = search.advance([[(4, -2.5), (5, -2.6)], [(4, -0.5), (5, -0.6)]])
    assert [(beam.tokens, beam.parent) for beam in second] == [((8, 4), 1), ((8, 5), 1)]
    assert second[0].logprob == pytest.approx(-1.5)


def test_an_end_beyond_the_width_does_not_count() -> None:
    search = BeamSearch(1, 10, [EOS])
    search.advance([[(7, -0.5), (EOS, -0.9)]])
    assert search.finished == []
    assert not search.is_done


def test_width_one_is_greedy_search() -> None:
    search = BeamSearch(1, 5, [EOS], early_stopping=True)
    search.advance([[(7, -0.1), (8, -1.0)]])
    assert search.advance([[(EOS, -0.2), (8, -1.0)]]) == []
    assert [(each.tokens, each.score) for each in search.finished] == [((7, EOS), pytest.approx(-0.15))]


def test_early_stopping_decides_when_to_give_up() -> None:
    def after_one_end(early_stopping: EarlyStopping, running: float) -> bool:
        search = BeamSearch(1, 10, [EOS], 1.0, early_stopping)
        search.advance([[(EOS, -1.0), (7, running)]])
        return search.is_done

    assert after_one_end(True, -1.5)
    assert after_one_end(False, -1.5)
    assert not after_one_end("never", -1.5)  # -1.5 over 10 tokens would still win
    assert after_one_end("never", -11.0)


def test_the_length_limit_ends_every_beam() -> None:
    search = BeamSearch(2, 1, [EOS], 0.0)
    assert search.advance([[(7, -1.0), (8, -2.0), (EOS, -3.0), (9, -4.0)]]) == []
    assert [each.tokens for each in search.finished] == [(7,), (8,)]
    with pytest.raises(AssertionError, match="done"):
        search.advance([])


def test_more_stop_tokens_need_more_candidates() -> None:
    assert BeamSearch(4, 9, []).num_candidates == 8
    assert BeamSearch(4, 9, [1]).num_candidates == 8
    assert BeamSearch(4, 9, [1, 2, 3]).num_candidates == 16


def test_impossible_tokens_do_not_break_the_order() -> None:
    search = BeamSearch(2, 9, [EOS])
    beams = search.advance([[(5, -0.5), (6, -math.inf), (7, -math.inf), (8, -math.inf)]])
    assert beams[0].tokens == (5,)
