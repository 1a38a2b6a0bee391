"""Measuring without weights and without a tokenizer."""

import shutil
from pathlib import Path

import pytest

from quire import LLM, AsyncLLM, SamplingParams
from quire.config.engine import EngineConfig
from quire.core.errors import ConfigError, InvalidRequest
from tests.parity.tiny import make_tiny


@pytest.fixture(scope="module")
def only_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = make_tiny("llama", tmp_path_factory.mktemp("llama"))
    folder = tmp_path_factory.mktemp("config")
    shutil.copy(tiny.path / "config.json", folder)
    return folder


@pytest.mark.parametrize("cpu_compute", ["fast", "exact"])
def test_a_config_alone_is_enough_to_measure(only_config: Path, cpu_compute: str) -> None:
    llm = LLM(str(only_config), load_format="dummy", skip_tokenizer=True, cpu_compute=cpu_compute)
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    first, again = (llm.generate([[5, 6, 7]], params, use_tqdm=False)[0].outputs[0] for _ in range(2))
    assert len(first.token_ids) == 6
    assert first.token_ids == again.token_ids
    with pytest.raises(InvalidRequest, match="loaded without its tokenizer; give token ids"):
        llm.generate(["text"], params, use_tqdm=False)
    with pytest.raises(ConfigError, match="leave skip_tokenizer out"):
        llm.get_tokenizer()


def test_a_server_refuses_to_skip_the_tokenizer(only_config: Path) -> None:
    with pytest.raises(ConfigError, match="a server needs its model's tokenizer"):
        AsyncLLM(EngineConfig.from_flat(model=str(only_config), skip_tokenizer=True))
