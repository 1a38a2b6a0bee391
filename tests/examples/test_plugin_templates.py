"""Every template of examples/plugins, installed by pip into a folder of its own and run through the real engine."""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quire.core.errors import ConfigError, InvalidRequest, PluginError
from quire.core.plugins import GROUPS, find_plugins
from quire.core.sampling_params import SamplingParams
from quire.engine.llm import LLM
from quire.engine.own_names import own_names
from quire.serving.async_llm import AsyncLLM
from tests.scheduler.bookkeeping import AlwaysAll
from tests.tiny_chat import write_tiny_chat

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "examples" / "plugins"
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 24}
PROMPTS = ["one two three", "a b a b a b", "the quick brown fox"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All templates as pip installs them."""
    sources, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    folders = [shutil.copytree(each, sources / each.name) for each in sorted(TEMPLATES.iterdir()) if each.is_dir()]
    quiet = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, "--target", target, *folders], check=True)
    return target


@pytest.fixture(autouse=True)
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On the path of this process and of those it starts; what a test permits is taken back."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("QUIRE_PLUGINS", "all")
    monkeypatch.delenv("QUIRE_PLUGINS")
    yield
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", "")).startswith(str(site)):
            del sys.modules[name]


def texts(
    model: Path, prompts: list[str] = PROMPTS, params: SamplingParams | None = None, **settings: Any
) -> list[str]:
    llm = LLM(str(model), num_gpu_blocks_override=256, **settings)
    try:
        outputs = llm.generate(prompts, params or SamplingParams(**GREEDY), use_tqdm=False)
        return [output.outputs[0].text for output in outputs]
    finally:
        llm.close()


@pytest.fixture(scope="module")
def plain(tiny_chat: Path) -> list[str]:
    return texts(tiny_chat)


def test_every_group_has_a_template_and_no_clash() -> None:
    for group in GROUPS:
        found = [plugin for plugin in find_plugins(group) if plugin.package.startswith("quire-")]
        assert found, f"examples/plugins has no template of {group}"
        assert own_names(group).isdisjoint(plugin.name for plugin in found)


def test_the_command_lists_them_all(site: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quire", "plugins", "--plugins", "all"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("  loads\n") == 11
    assert "  quill  quire-quill 0.1.0  quire_quill:FAMILY  loads" in done.stdout


def test_scheduler_short_prompts_go_first(tiny_chat: Path) -> None:
    llm = LLM(str(tiny_chat), num_gpu_blocks_override=256, max_num_seqs=1, scheduling_policy="shortest-prompt")
    prompts = ["x " * 60, "y " * 40, "z"]
    outputs = llm.generate(prompts, SamplingParams(**GREEDY), use_tqdm=False)
    llm.close()
    firsts = [output.metrics.first_token_time or 0.0 for output in outputs]
    assert firsts == sorted(firsts, reverse=True)


def test_scheduler_that_is_kept_out(tiny_chat: Path) -> None:
    with pytest.raises(PluginError, match=r"'shortest-prompt' is a plugin of quire-shortest-prompt 0.1.0, which"):
        texts(tiny_chat, scheduling_policy="shortest-prompt", plugins="none")


def test_parsers_read_calls_and_thinking(tiny_chat: Path) -> None:
    from quire.config.parsers import ParserConfig
    from quire.protocol.parsers.choose import choose_calls
    from quire.protocol.parsers.reading import Reading
    from quire.protocol.parsers.style import AnswerStyle
    from quire.protocol.parsers.tools import Tools
    from quire.text.load import load_tokenizer

    style = AnswerStyle(
        "", load_tokenizer(tiny_chat), ParserConfig(tool_parser="double-brackets", reasoning_parser="scratchpad")
    )
    assert style.form is not None
    text = '<scratchpad>Let me see.</scratchpad>[[call]]{"name": "add", "arguments": {"a": 1}}[[/call]]'
    reading = Reading(style.thinking, None, style.form, Tools())
    message = reading.message(0, text)
    assert [(call.name, call.arguments) for call in message.calls] == [("add", '{"a": 1}')]
    assert choose_calls("auto", "the template shows [[call]]") is None, "a template must not choose a plugin"
    with pytest.raises(PluginError, match=r"--tool-parser is 'scratchpad', whose plugin is no CallFormat"):
        AnswerStyle("", load_tokenizer(tiny_chat), ParserConfig(tool_parser="scratchpad"))


def write_biased(folder: Path, model_type: str) -> Path:
    """A tiny model with biases on q, k, v and o."""
    write_tiny_chat(folder)
    weights, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    generator = torch.Generator().manual_seed(3)
    for name in [name for name in weights if "self_attn" in name]:
        weights[name.replace(".weight", ".bias")] = torch.randn(len(weights[name]), generator=generator) * 0.3
    save_file(weights, folder / "model.safetensors")
    config |= {"model_type": model_type, "attention_bias": True, "architectures": ["QuillForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_model_family(tmp_path: Path, plain: list[str]) -> None:
    llama, quill = write_biased(tmp_path / "llama", "llama"), write_biased(tmp_path / "quill", "quill")
    with pytest.raises(PluginError, match=r"is of type 'quill', which is a plugin of quire-quill 0.1.0"):
        texts(quill)
    expected = texts(llama, cpu_compute="exact")
    assert expected != plain
    assert texts(quill, plugins="quire-quill", cpu_compute="exact") == expected


def write_ternary(folder: Path, *, packed: bool) -> Path:
    """A tiny model whose layers have weights of -1, 0 and 1 times a scale, plain or in the template's format."""
    write_tiny_chat(folder)
    weights, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    for name, weight in list(weights.items()):
        if ".layers." not in name or weight.dim() == 1:
            continue
        scale = weight.abs().mean(1)
        trits = (weight / scale[:, None]).round().clamp(-1, 1)
        if not packed:
            weights[name] = trits * scale[:, None]
            continue
        del weights[name]
        four = (trits + 1).to(torch.uint8).view(len(trits), -1, 4)
        shifts = torch.arange(0, 8, 2)
        weights[name.replace(".weight", ".weight_trits")] = (four << shifts).sum(-1).to(torch.uint8)
        weights[name.replace(".weight", ".weight_scale")] = scale
    save_file(weights, folder / "model.safetensors")
    if packed:
        config["quantization_config"] = {"quant_method": "ternary"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_weight_format(tmp_path: Path) -> None:
    stored, packed = write_ternary(tmp_path / "plain", packed=False), write_ternary(tmp_path / "packed", packed=True)
    with pytest.raises(PluginError, match=r"the weight format 'ternary' is a plugin of quire-ternary 0.1.0"):
        texts(packed)
    exact: dict[str, Any] = {"cpu_compute": "exact"}
    assert texts(packed, plugins="all", packed_weights="keep", **exact) == texts(stored, **exact)
    assert all(texts(packed, plugins="all")), "the native core takes it too"


def test_proposer_drafts_and_changes_no_answer(tiny_chat: Path, plain: list[str]) -> None:
    speculation = {"method": "say-it-again", "num_speculative_tokens": 3}
    llm = LLM(str(tiny_chat), num_gpu_blocks_override=256, speculative_config=speculation)
    llm._engine.loop.scheduler._draft_length = AlwaysAll(3)  # whatever the clock says
    found = llm.generate(PROMPTS, SamplingParams(**GREEDY), use_tqdm=False)
    drafts = llm._engine.drafts
    llm.close()
    assert [output.outputs[0].text for output in found] == plain
    assert drafts.tokens > drafts.accepted > 0
    with pytest.raises(ConfigError, match=r"'say-it-agian'; quire has ngram, .*say-it-again"):
        LLM(str(tiny_chat), speculative_config={"method": "say-it-agian"})
    with pytest.raises(ConfigError, match=r"key 'model', which the method say-it-again does not take"):
        LLM(str(tiny_chat), speculative_config={"method": "say-it-again", "model": "x"})


def runs(tokens: list[int], size: int) -> list[tuple[int, ...]]:
    return [tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1)]


@pytest.mark.parametrize("speculation", [None, {"method": "ngram", "num_speculative_tokens": 3}])
def test_logits_processors_touch_only_who_asks(tiny_chat: Path, speculation: dict[str, object] | None) -> None:
    settings: dict[str, Any] = {} if speculation is None else {"speculative_config": speculation}
    llm = LLM(str(tiny_chat), num_gpu_blocks_override=256, logits_processors="no-repeat,favour", **settings)
    asked: list[dict[str, Any] | None] = [None, {"no-repeat": {"size": 2}}, {"favour": {"token": 65, "by": 100}}, None]
    params = [SamplingParams(**GREEDY, logits_processor_args=each) for each in asked]
    together = [out.outputs[0].token_ids for out in llm.generate(["a b a b a b"] * 4, params, use_tqdm=False)]
    alone = llm.generate("a b a b a b", SamplingParams(**GREEDY), use_tqdm=False)[0]
    refused: dict[str, dict[str, Any]] = {
        "no-repeat: give a size of 2 to 8 and nothing else": {"no-repeat": {"size": 1}},
        "names 'no-repaet', which is no logits processor here": {"no-repaet": {}},
    }
    for why, wrong in refused.items():
        with pytest.raises(InvalidRequest, match=why):
            llm.generate("x", SamplingParams(logits_processor_args=wrong), use_tqdm=False)
    prompt = list(alone.prompt_token_ids or ())
    llm.close()
    assert together[0] == together[3] == alone.outputs[0].token_ids
    assert set(together[2]) == {65}
    pairs, plain_pairs = runs(prompt + together[1], 2), runs(prompt + together[0], 2)
    before = runs(prompt, 2)
    drawn = pairs[len(before) :]
    assert len(set(drawn)) == len(drawn), "a pair that was drawn came twice"
    assert not set(drawn) & set(before)
    assert len(set(plain_pairs)) < len(plain_pairs), "without it, pairs do repeat here"


def test_a_request_cannot_load_a_processor(tiny_chat: Path) -> None:
    llm = LLM(str(tiny_chat), num_gpu_blocks_override=64)
    with pytest.raises(InvalidRequest, match=r"names 'favour', which is no logits processor here; none is loaded"):
        llm.generate("x", SamplingParams(logits_processor_args={"favour": {}}), use_tqdm=False)
    llm.close()
    assert "quire_logits_examples" not in sys.modules


def test_device(tiny_chat: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = texts(tiny_chat, device_plugin="plain-cpu")
    assert found == texts(tiny_chat, cpu_compute="exact")
    assert "plain-cpu is a plugin's device: it computes without kernels of quire's own, graphs" in caplog.text
    for name in ("mps", "xpu"):
        if not getattr(torch, name).is_available():
            with pytest.raises(ConfigError, match=f"--device-plugin is '{name}', and this machine has no such device"):
                LLM(str(tiny_chat), device_plugin=name)
    with pytest.raises(ConfigError, match=r"spread over 2 ranks, which only quire's own devices"):
        LLM(str(tiny_chat), device_plugin="plain-cpu", tensor_parallel_size=2)


def test_engine_processes_have_the_same_plugins(tmp_path: Path) -> None:
    """The model, the policy and the processor are all an engine's, in a process of its own."""
    quill = write_biased(tmp_path / "quill", "quill")
    settings: dict[str, Any] = {
        "plugins": "quire-quill,shortest-prompt,favour",
        "scheduling_policy": "shortest-prompt",
        "logits_processors": "favour",
        "num_gpu_blocks_override": 256,
    }

    async def ask() -> tuple[list[int], str]:
        async with await AsyncLLM.create(str(quill), **settings) as llm:
            favoured = SamplingParams(**GREEDY, logits_processor_args={"favour": {"token": 65, "by": 100}})
            outputs = [
                [output async for output in llm.generate(PROMPTS[0], params)][-1].outputs[0]
                for params in (favoured, SamplingParams(**GREEDY))
            ]
            with pytest.raises(InvalidRequest, match=r"no-repeat"):
                [_ async for _ in llm.generate("x", SamplingParams(logits_processor_args={"no-repeat": {"size": 2}}))]
            return outputs[0].token_ids, outputs[1].text

    tokens, text = asyncio.run(ask())
    assert set(tokens) == {65}
    assert [text] == texts(quill, PROMPTS[:1], plugins="all")


@pytest.mark.slow
def test_ranks_have_the_same_plugins(tmp_path: Path) -> None:
    quill = write_biased(tmp_path / "quill", "quill")
    params = SamplingParams(**GREEDY, logits_processor_args={"no-repeat": {"size": 2}})
    settings: dict[str, Any] = {"plugins": "all", "logits_processors": "no-repeat", "cpu_compute": "exact"}
    alone = texts(quill, params=params, **settings)
    assert texts(quill, params=params, tensor_parallel_size=2, **settings) == alone
