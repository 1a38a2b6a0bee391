"""Logprobs in parts: the same numbers, and never more logits at once than allowed."""

import msgspec
import pytest
import torch

from quire.core.logprobs import PositionLogprobs
from quire.sampling import logprobs as module
from quire.sampling.logprobs import logprobs_of, prompt_logprobs

VOCAB = 211


def test_prompt_logprobs_never_hold_the_prompts_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", 8 * VOCAB + 5)
    generator = torch.Generator().manual_seed(0)
    hidden, head = torch.randn(83, 16, generator=generator), torch.randn(16, VOCAB, generator=generator)
    tokens = torch.randint(0, VOCAB, (83,), generator=generator)
    sizes = []

    def project(states: torch.Tensor) -> torch.Tensor:
        sizes.append(len(states))
        return states @ head

    found = prompt_logprobs(hidden, project, tokens, 3, VOCAB)
    assert sizes == [8] * 10 + [3]
    exact = (hidden.double() @ head.double()).log_softmax(dim=-1)
    assert torch.allclose(found.logprobs.double(), exact.gather(1, found.ids), atol=1e-4)
    assert torch.equal(found.ids[:, 0], tokens)
    assert found.ranks.tolist() == (exact >= exact.gather(1, tokens[:, None])).sum(dim=-1).tolist()


def test_parts_do_not_change_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(20, VOCAB, generator=torch.Generator().manual_seed(1))
    tokens = torch.arange(20)
    whole = prompt_logprobs(logits, lambda some: some, tokens, 4, VOCAB)
    monkeypatch.setattr(module, "LOGITS_AT_ONCE", 1)
    parts = prompt_logprobs(logits, lambda some: some, tokens, 4, VOCAB)
    assert torch.equal(whole.ids, parts.ids)
    assert torch.equal(whole.logprobs, parts.logprobs)
    assert torch.equal(whole.ranks, parts.ranks)


def test_more_logprobs_than_tokens() -> None:
    found = logprobs_of(torch.zeros(1, 3), torch.tensor([1]), torch.tensor([20]), 20)
    (entry,) = found.at([(0, 20, ())])
    assert [token for token, _ in entry.top] == [0, 1, 2]


def test_no_positions() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    assert logprobs_of(torch.zeros(0, 3), none, none, 2).at([]) == []


def test_each_position_gets_as_many_as_it_asked_for() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0]] * 3)
    found = logprobs_of(logits, torch.tensor([0, 1, 2]), torch.tensor([0, -1, 2]), 2)
    first, second = found.at([(0, 0, ()), (2, 2, ())])
    assert first.top == ()
    assert (first.token, first.rank) == (0, 3)
    assert [token for token, _ in second.top] == [2, 1]
    assert second.top[0][1] == second.logprob


def test_named_tokens() -> None:
    logits = torch.randn(2, VOCAB, generator=torch.Generator().manual_seed(2))
    named = torch.tensor([[7, 210, 0], [3, 0, 0]])
    found = logprobs_of(logits, torch.tensor([4, 3]), torch.tensor([0, 1], dtype=torch.int32), 5, named)
    exact = logits.double().log_softmax(dim=-1)
    for place, entry in enumerate(found.at([(0, 0, (7, 210)), (1, 1, (3,))])):
        assert [token for token, _ in entry.named] == [[7, 210], [3]][place]
        for token, value in entry.named:
            assert value == pytest.approx(float(exact[place, token]), abs=1e-5)


def test_entries_travel() -> None:
    entry = PositionLogprobs(5, -0.5, 2, ((1, -0.25), (5, -0.5)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(entry), type=PositionLogprobs) == entry
