"""Logits processors of plugins: rows that did not ask keep their logits, and one that misbehaves fails its own rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from quire.core.errors import InvalidRequest, PluginError
from quire.core.sampling_params import MAX_PROCESSOR_ARGS, SamplingParams
from quire.engine.llm import LLM
from quire.protocol.openai.body import read_completion_body
from quire.sampling.logits_processor import LogitsProcessor, check_processor_args, load_processors
from quire.sampling.mode import SamplingMode, sampling_mode
from quire.sampling.sampler import Sampler
from quire.sampling.state import SamplingState
from tests.core.package_shelf import PackageShelf

VOCABULARY, ROWS = 17, 4
GROUP = "quire.logits_processors"


class Spoil(LogitsProcessor):
    """Makes nonsense of every place that it is given."""

    def admit(self, row: int, arguments: Mapping[str, Any], prompt: Sequence[int], output: Sequence[int]) -> None: ...

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor, history: Tensor) -> Tensor:
        return logits.fill_(float("nan"))


class LastAgain(LogitsProcessor):
    """Wants the last token again, which it finds in the history."""

    can_be_captured = True

    def admit(self, row: int, arguments: Mapping[str, Any], prompt: Sequence[int], output: Sequence[int]) -> None: ...

    def apply(self, logits: Tensor, rows: Tensor, positions: Tensor, history: Tensor) -> Tensor:
        last = history[rows, positions - 1].long()
        return logits.scatter(1, last[:, None], 100.0)


def asking(*names: str, **given: Any) -> SamplingParams:
    return SamplingParams(logits_processor_args={name: {} for name in names} or None, **given)


def state_of(*asked: SamplingParams) -> tuple[SamplingState, Tensor]:
    """A row for each, and the history of all."""
    kinds = {"spoil": Spoil, "last": LastAgain}
    state = SamplingState(ROWS, VOCABULARY, torch.device("cpu"), processors=kinds)
    for row, params in enumerate(asked):
        state.admit(row, params, request_id=f"r{row}", index=0, prompt=[row + 1])
    history = torch.zeros(ROWS + 1, 8, dtype=torch.int32)
    history[:, 0] = torch.arange(1, ROWS + 2)
    return state, history


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_rows_that_did_not_ask_draw_what_they_would_draw_alone(dtype: torch.dtype, temperature: float) -> None:
    how: dict[str, Any] = {"temperature": temperature, "seed": 5, "top_p": 0.9}
    logits = torch.randn(3, VOCABULARY, generator=torch.Generator().manual_seed(1)).to(dtype)
    rows, positions = torch.arange(3), torch.ones(3, dtype=torch.int64)
    without, history = state_of(*[asking(**how)] * 3)
    expected = Sampler(without, history).sample(logits, rows, positions, without.mode)
    state, history = state_of(asking("last", **how), asking(**how), asking("spoil", **how))
    found = Sampler(state, history).sample(logits.clone(), rows, positions, state.mode)
    assert found.tokens[1] == expected.tokens[1]
    assert found.tokens[0] == history[0, 0], "the first row wanted its last token again"
    assert found.invalid.tolist() == [False, False, True]


def test_logprobs_are_the_models_own() -> None:
    logits = torch.randn(1, VOCABULARY, generator=torch.Generator().manual_seed(1))
    state, history = state_of(asking("last", temperature=0, logprobs=0))
    found = Sampler(state, history).sample(logits, torch.tensor([0]), torch.tensor([1]), state.mode)
    assert found.logprobs is not None
    expected = logits.log_softmax(-1)[0, found.tokens[0]]
    assert float(found.logprobs.logprobs[0, 0]) == pytest.approx(float(expected), abs=1e-5)


def names_of(state: SamplingState) -> list[str]:
    return list(state.mode.processors)


def needs_host(state: SamplingState) -> bool:
    return state.processors.need_the_host


def test_graphs_hold_only_those_that_say_so() -> None:
    state, _ = state_of(asking("last"), asking())
    assert names_of(state) == ["last"]
    assert state.mode.of_graph().processors == ("last",), "steps with other processors are other graphs"
    assert not needs_host(state)
    state.admit(2, asking("spoil", "last"), request_id="r2", index=0, prompt=[1])
    assert names_of(state) == ["last", "spoil"]
    assert needs_host(state)
    state.release(2)
    state.release(0)
    assert not needs_host(state)
    assert names_of(state) == []
    assert sampling_mode([asking()], VOCABULARY) == SamplingMode(noise=True, width=1)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "an object of objects"),
        ({"x": 3}, "an object of objects"),
        ({str(number): {} for number in range(9)}, "at most 8 logits processors"),
        ({"": {}}, "by name"),
        ({"x": {"text": "y" * MAX_PROCESSOR_ARGS}}, f"at most {MAX_PROCESSOR_ARGS} bytes of JSON"),
        ({"x": {"y": object()}}, "an object as JSON has them"),
    ],
)
def test_arguments_are_bounded(given: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        SamplingParams(logits_processor_args=given)


def test_what_is_not_loaded_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"names 'lst', which is no logits processor here; loaded are last"):
        check_processor_args({"lst": {}}, {"last": LastAgain})


def test_a_plugin_of_another_kind_is_refused(packages: PackageShelf) -> None:
    packages.add("odd", {GROUP: {"odd": "odd:ODD"}}, "ODD = 3")
    with pytest.raises(PluginError, match=r"logits processor 'odd' is 3, and must be a subclass of LogitsProcessor"):
        load_processors(["odd"])


THROWS = """
from quire.protocol.openai.body import read_completion_body
from quire.sampling.logits_processor import LogitsProcessor

class Throws(LogitsProcessor):
    def admit(self, row, arguments, prompt, output): ...

    def apply(self, logits, rows, positions, history):
        raise RuntimeError("not today")
"""


def test_one_that_throws_fails_its_own_requests_alone(packages: PackageShelf, tiny_chat: Path) -> None:
    packages.add("throws", {GROUP: {"throws": "throws:Throws"}}, THROWS)
    llm = LLM(str(tiny_chat), num_gpu_blocks_override=128, logits_processors="throws")
    greedy: dict[str, Any] = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
    params = [asking(**greedy), asking("throws", **greedy), asking(**greedy)]
    outputs = llm.generate(["one", "two", "three"], params, use_tqdm=False)
    after = llm.generate("one", asking(**greedy), use_tqdm=False)[0]
    llm.close()
    reasons = [output.outputs[0].finish_reason for output in outputs]
    assert reasons == ["length", "error", "length"]
    assert outputs[0].outputs[0].token_ids == after.outputs[0].token_ids


def test_a_body_names_them() -> None:
    given = {"last": {"by": 2}}
    body = read_completion_body({"prompt": "x", "logits_processor_args": given})
    assert body.params.logits_processor_args == given
    with pytest.raises(
        InvalidRequest, match=r"logits_processor_args is \{'last': 3\}; it must be an object of objects"
    ):
        read_completion_body({"prompt": "x", "logits_processor_args": {"last": 3}})
