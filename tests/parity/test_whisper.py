"""Whisper against transformers: one window, several at once, cut prompts, preemption, and what a slot keeps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.config.engine import EngineConfig
from quire.core.encoder_input import EncoderInput
from quire.core.errors import ConfigError, InvalidRequest
from quire.core.outputs import RequestOutput
from quire.core.pooling_params import PoolingParams
from quire.core.sampling_params import SamplingParams
from quire.engine.engine import Engine, start_engine
from tests.parity.tiny_whisper import START, features, make_whisper, window

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, logprobs=4)
PROMPTS = [[START, 5, 7], [START, 9], [START, 5, 7, *range(40, 60)], [START]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whisper")


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Any:
    return make_whisper(folder)


@pytest.fixture(scope="module")
def engine(folder: Path, oracle: Any) -> Iterator[Engine]:
    started = start(folder, block_size=16)
    yield started
    started.close()


def start(folder: Path, **settings: object) -> Engine:
    return start_engine(EngineConfig.from_flat(model=str(folder), **{"max_num_seqs": 4, **settings}))[0]


def answers(engine: Engine, prompts: list[list[int]], sources: list[EncoderInput]) -> list[RequestOutput]:
    given = zip(prompts, sources, strict=True)
    ids = [engine.add(prompt, GREEDY, source=source) for prompt, source in given]
    found: dict[str, RequestOutput] = {}
    while engine.has_work:
        found |= {output.request_id: output for output in engine.step()}
    return [found[each] for each in ids]


@torch.no_grad()
def expected(oracle: Any, prompt: list[int], source: EncoderInput) -> tuple[list[int], list[torch.Tensor]]:
    tokens, logprobs = list(prompt), []
    for _ in range(24):
        logits = oracle(input_features=features(source), decoder_input_ids=torch.tensor([tokens])).logits[0, -1]
        logprobs.append(torch.log_softmax(logits, -1))
        tokens.append(int(logits.argmax()))
    return tokens[len(prompt) :], logprobs


def assert_equal(oracle: Any, prompt: list[int], source: EncoderInput, output: RequestOutput, near: float) -> None:
    tokens, logprobs = expected(oracle, prompt, source)
    [found] = output.outputs
    assert found.token_ids == tokens
    assert found.logprobs is not None
    for wanted, position in zip(logprobs, found.logprobs, strict=True):
        for token, told in position.items():
            assert told.logprob == pytest.approx(float(wanted[token]), abs=near)


def test_windows_of_several_files_at_once(engine: Engine, oracle: Any) -> None:
    sources = [window(number) for number in range(4)]
    for prompt, source, output in zip(PROMPTS, sources, answers(engine, PROMPTS, sources), strict=True):
        assert_equal(oracle, prompt, source, output, 1e-4)


def test_the_same_prompt_of_other_sound_is_no_hit(engine: Engine, oracle: Any) -> None:
    prompt = [START, *range(70, 105)]
    first, again, other = window(20), window(20), window(21)
    for source, cached in ((first, False), (again, True), (other, False)):
        before = engine.loop.scheduler.kv.stats.hits
        [output] = answers(engine, [prompt], [source])
        assert (engine.loop.scheduler.kv.stats.hits > before) == cached
        assert_equal(oracle, prompt, source, output, 1e-4)


def test_more_windows_than_rows_take_turns(engine: Engine, oracle: Any) -> None:
    prompts, sources = [[START, number] for number in range(9)], [window(30 + number % 6) for number in range(9)]
    for prompt, source, output in zip(prompts, sources, answers(engine, prompts, sources), strict=True):
        assert_equal(oracle, prompt, source, output, 1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 5},  # prompts are cut
        {"num_gpu_blocks_override": 5, "block_size": 16, "max_num_batched_tokens": 32},  # sequences make way
        {"num_gpu_blocks_override": 5, "block_size": 16, "swap_space": 0.01, "preemption_mode": "swap"},
        {"enable_prefix_caching": False, "max_num_seqs": 2},
    ],
    ids=["chunks", "recompute", "swap", "no cache"],
)
def test_ways_to_the_same_tokens(folder: Path, oracle: Any, settings: dict[str, object]) -> None:
    engine = start(folder, **settings)
    sources = [window(number) for number in range(4)]
    # the long one alone: steps of nothing but a chunk yield no hidden state
    outputs = [*answers(engine, PROMPTS[2:3], sources[2:3]), *answers(engine, PROMPTS, sources)][1:]
    for prompt, source, output in zip(PROMPTS, sources, outputs, strict=True):
        assert_equal(oracle, prompt, source, output, 1e-4)
    if settings.get("num_gpu_blocks_override"):
        stats = engine.loop.scheduler.stats
        assert stats.preempted_recompute + stats.preempted_swap > 0
    engine.close()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_checkpoints(tmp_path: Path, dtype: torch.dtype) -> None:
    oracle = make_whisper(tmp_path, tie_word_embeddings=True).to(dtype)
    oracle.save_pretrained(tmp_path)
    engine = start(tmp_path, dtype="float32")
    [output] = answers(engine, [[START, 5]], [window(3)])
    assert_equal(oracle.float(), [START, 5], window(3), output, 1e-4)
    engine.close()


def test_another_activation_and_depth(tmp_path: Path) -> None:
    oracle = make_whisper(tmp_path, encoder_layers=1, activation_function="relu")
    engine = start(tmp_path)
    [output] = answers(engine, [[START, 5]], [window(3)])
    assert_equal(oracle, [START, 5], window(3), output, 1e-4)
    engine.close()


def test_what_an_encoder_does_not_go_with(folder: Path, oracle: Any) -> None:
    spread = ({"tensor_parallel_size": 2}, {"pipeline_parallel_size": 2})
    for settings in (*spread, {"enable_lora": True}, {"compile": True}, {"quantization": "int8"}):
        with pytest.raises(ConfigError, match=r"--[a-z-]+ is for decoders so far.*has an encoder and a decoder"):
            start(folder, **settings)


def test_texts_and_misshapen_sound_are_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="writes down what is said"):
        engine.add([START], GREEDY)
    source = window(0)
    half = EncoderInput(source.digest, (50, 16), source.values[: len(source.values) // 2])
    with pytest.raises(InvalidRequest, match="takes 100 of 16"):
        engine.add([START], GREEDY, source=half)


def test_windows_do_not_stay_on_a_sleeping_device(folder: Path, oracle: Any) -> None:
    engine = start(folder)
    try:
        sources = [window(seed) for seed in (1, 2)]
        before = [output.outputs[0].token_ids for output in answers(engine, PROMPTS[:2], sources)]
        encoded = engine.loop.executor._worker._encoded  # type: ignore[attr-defined]
        held = encoded.num_bytes
        assert held > 0
        while engine.loop.has_work:
            engine.step()
        engine.loop.sleep(1)
        assert encoded.num_bytes == 0
        engine.loop.wake_up()
        assert encoded.num_bytes == held
        assert [output.outputs[0].token_ids for output in answers(engine, PROMPTS[:2], sources)] == before
    finally:
        engine.close()


@torch.no_grad()
def test_alignments_are_those_of_transformers_attentions(engine: Engine, oracle: Any) -> None:
    """Chunks or not: how much each token stands out at each position, by heads of two layers."""
    heads, count = ((0, 1), (2, 0), (2, 3)), 40
    source, tokens = window(3), [START, 5, 7, *range(40, 60)]
    [rows] = engine.pool([tokens], [PoolingParams("align", heads=heads, positions=count)], source=source)
    oracle.set_attn_implementation("eager")
    given = oracle(
        input_features=features(source), decoder_input_ids=torch.tensor([tokens]), output_attentions=True
    ).cross_attentions
    weights = torch.stack([given[layer][0, head, :, :count] for layer, head in heads])  # [heads, tokens, positions]
    weights = weights / weights.sum(-1, keepdim=True)
    deviation, mean = torch.std_mean(weights, dim=1, keepdim=True, unbiased=False)
    padded = torch.nn.functional.pad((weights - mean) / deviation, (3, 3), mode="reflect")
    wanted = padded.unfold(-1, 7, 1).median(-1).values.mean(0)
    torch.testing.assert_close(torch.tensor(rows), wanted, atol=1e-3, rtol=1e-3)
