"""The sampling mode of a batch follows from the parameters of the admitted sequences."""

import pytest

from quire.core.sampling_params import SamplingParams
from quire.sampling.mode import WIDEST, SamplingMode, num_reported, sampling_mode

VOCAB = 5000


def test_greedy_sequences_use_nothing() -> None:
    mode = sampling_mode([SamplingParams(temperature=0, top_k=5, top_p=0.5, min_p=0.1)], VOCAB)
    assert not any((mode.noise, mode.top_k, mode.top_p, mode.min_p, mode.adjusts, mode.names))
    assert mode.reported is None


def test_each_field() -> None:
    assert sampling_mode([SamplingParams()], VOCAB).noise
    assert sampling_mode([SamplingParams(top_k=5)], VOCAB).top_k
    assert not sampling_mode([SamplingParams(top_k=VOCAB)], VOCAB).top_k
    assert sampling_mode([SamplingParams(), SamplingParams(top_p=0.9)], VOCAB).top_p
    assert sampling_mode([SamplingParams(min_p=0.1)], VOCAB).min_p
    reports = [SamplingParams(logprobs=0), SamplingParams(), SamplingParams(logprobs=3, logprob_token_ids=(1,))]
    assert sampling_mode(reports[:2], VOCAB).reported == 0
    assert sampling_mode(reports, VOCAB).reported == 3
    assert [sampling_mode(some, VOCAB).names for some in (reports, reports[:2])] == [True, False]
    assert sampling_mode(reports, VOCAB, adjusts=True).adjusts


@pytest.mark.parametrize(
    ("sequences", "width"),
    [
        ([{"top_k": 50}], 64),
        ([{"top_k": 64}, {"top_k": 3, "top_p": 0.9}, {}], 64),
        ([{"top_k": 1}], 1),
        ([{"top_k": 3}, {"top_p": 0.9}], None),  # one of them needs every token
        ([{"top_k": WIDEST}], WIDEST),
        ([{"top_k": WIDEST + 1}], None),
        ([{"top_k": 50}, {"top_p": 0.9, "temperature": 0.0}], 64),
    ],
)
def test_width(sequences: list[dict[str, float]], width: int | None) -> None:
    assert sampling_mode([SamplingParams(**each) for each in sequences], VOCAB).width == width  # type: ignore[arg-type]


def test_width_never_exceeds_the_vocabulary() -> None:
    assert sampling_mode([SamplingParams(top_k=37)], 40).width == 40
    assert sampling_mode([SamplingParams(top_k=41)], 40).width is None


def test_best_of_needs_the_logprob_of_what_is_drawn() -> None:
    assert num_reported(SamplingParams(best_of=3)) == 0
    assert num_reported(SamplingParams(best_of=3, logprobs=2)) == 2
    assert num_reported(SamplingParams(n=3, best_of=3)) is None
    assert sampling_mode([SamplingParams(best_of=2)], VOCAB).reported == 0


def test_a_graph_serves_whatever_is_asked_for_and_there_are_few() -> None:
    asked = [
        {"temperature": 0.0},
        {},
        {"top_p": 0.9},
        {"top_k": 5, "min_p": 0.1},
        {"temperature": 0.0, "logprobs": 5},
        {"logprobs": 20},
        {"logprobs": 21},
        {"logprobs": 0, "logprob_token_ids": (3,)},
    ]
    modes = [sampling_mode([SamplingParams(**each)], VOCAB) for each in asked]  # type: ignore[arg-type]
    modes.append(sampling_mode([SamplingParams(temperature=0)], VOCAB, adjusts=True))
    for mode in modes:
        graph = mode.of_graph()
        for name in ("noise", "top_k", "top_p", "min_p", "adjusts", "names"):
            assert getattr(graph, name) >= getattr(mode, name)
        assert mode.reported is None or (graph.reported or 0) >= mode.reported
        assert graph.of_graph() == graph
    assert len({mode.of_graph() for mode in modes}) == 4
    assert modes[0].of_graph() == SamplingMode()
