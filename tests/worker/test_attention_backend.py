"""A worker with another library for prompts: which steps it gets, and that answers stay."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from quire import LLM, ConfigError, SamplingParams
from quire.ops.attention.base import Attend, AttentionBackend, AttentionShape
from quire.ops.functional import paged_attention
from quire.worker import start
from tests.engine.tiny_model import make_text_model

PARAMS = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


class Recording(AttentionBackend):
    """Notes what it is given; the numbers are the definition's."""

    def __init__(self, shape: AttentionShape, device: torch.device) -> None:
        self.shape = shape
        self.steps: list[tuple[list[int], list[int]]] = []
        self.layers = 0

    @staticmethod
    def problem(shape: AttentionShape) -> str | None:
        return None

    def step(self, counts: Sequence[int], lengths: Sequence[int]) -> Attend:
        self.steps.append((list(counts), list(lengths)))

        def attend(query, keys, values, tables, query_starts, known_lengths, **way):
            assert query_starts.diff().tolist() == list(counts)
            assert known_lengths.tolist() == list(lengths)
            self.layers += 1
            return paged_attention(query, keys, values, tables, query_starts, known_lengths, **way)

        return attend


def test_prompts_go_to_the_library_and_decodes_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_text_model(tmp_path, "gemma2")
    settings = {"dtype": "float32", "block_size": 4, "num_gpu_blocks_override": 512, "max_num_batched_tokens": 24}
    if not torch.cuda.is_available():
        settings["cpu_compute"] = "exact"
    plain = LLM(str(tmp_path), max_num_seqs=4, **settings)
    made: list[Recording] = []

    def choose(asked: str, shape: AttentionShape, device: torch.device) -> Recording:
        made.append(Recording(shape, device))
        return made[-1]

    monkeypatch.setattr(start, "choose_backend", choose)
    other = LLM(str(tmp_path), max_num_seqs=4, **settings)
    prompts = ["a" * 30, "bcd", "efghi"]
    wanted, found = (
        [output.outputs[0].token_ids for output in llm.generate(prompts, PARAMS, use_tqdm=False)]
        for llm in (plain, other)
    )
    assert found == wanted
    [backend] = made
    assert (backend.shape.num_heads, backend.shape.head_dim, backend.shape.block_size) == (4, 16, 4)
    assert {window for window, _ in backend.shape.ways} == {None, 8}
    assert all(max(counts) > 1 for counts, _ in backend.steps)
    assert backend.steps[0] == ([24], [24])
    assert len(backend.steps) < 5, "decodes are not among them"
    assert backend.layers == 4 * len(backend.steps)
    plain.close()
    other.close()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_cpu_has_no_such_choice(tmp_path: Path) -> None:
    make_text_model(tmp_path, "llama")
    with pytest.raises(ConfigError, match="--attention-backend is flashinfer, which needs a GPU"):
        LLM(str(tmp_path), attention_backend="flashinfer")
