"""Scaled rotary positions: what GGUF says in metadata and tensors turns heads as the original config does."""

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.layers.rope import Rope
from quire.models.loading.gguf_config import gguf_config
from quire.models.loading.gguf_header import read_gguf_header
from quire.models.registry import describe_gguf
from quire.spec.rope import read_rope

HEAD_DIM = 64
LONGEST = 4096
LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 1024,
}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0 + index / 64 for index in range(HEAD_DIM // 2)],
    "long_factor": [1.0 + index / 2 for index in range(HEAD_DIM // 2)],
    "original_max_position_embeddings": 1024,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


def llama_3_factors() -> list[float]:
    """As the converter computes them."""
    factors = []
    for index in range(0, HEAD_DIM, 2):
        wavelength = 2 * math.pi * 500_000.0 ** (index / HEAD_DIM)
        smooth = (1024 / wavelength - 1.0) / (4.0 - 1.0)
        blended = 1 / ((1 - smooth) / 8.0 + smooth)
        factors.append(1.0 if wavelength < 1024 / 4.0 else 8.0 if wavelength > 1024 / 1.0 else blended)
    return factors


def config(
    path: Path, architecture: str = "llama", tensors: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    """The config of a GGUF file with these rope keys (dots as double underscores) and tensors."""
    writer = gguf.GGUFWriter(path / "model.gguf", architecture)
    writer.add_block_count(1)
    writer.add_context_length(LONGEST)
    writer.add_embedding_length(4 * HEAD_DIM)
    writer.add_head_count(4)
    writer.add_rope_freq_base(500_000.0)
    for name, value in metadata.items():
        adders: dict[type, Any] = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
        adders[type(value)](f"{architecture}.rope.{name.replace('__', '.')}", value)
    writer.add_tensor("token_embd.weight", np.zeros((8, 4 * HEAD_DIM), dtype=np.float32))
    for name, value in (tensors or {}).items():
        writer.add_tensor(name, np.asarray(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return gguf_config([read_gguf_header(path / "model.gguf")])


def angles(values: dict[str, Any]) -> Tensor:
    rope = Rope(read_rope(values, HEAD_DIM), torch.device("cpu"))
    positions = torch.tensor([0, 1, 7, 100, 1023, 1024, 3000, 4095])
    return torch.stack(rope(positions, torch.zeros_like(positions)))


def original(scaling: dict[str, Any] | None) -> dict[str, Any]:
    return {"rope_theta": 500_000.0, "max_position_embeddings": LONGEST, "rope_scaling": scaling}


def float32(values: list[float]) -> Any:
    return np.asarray(values, dtype=np.float32)


def attention_factor() -> float:
    return math.sqrt(1 + math.log(LONGEST / 1024) / math.log(1024))


def cases() -> list[Any]:
    short, long = "rope_factors_short.weight", "rope_factors_long.weight"
    factors = {short: float32(LONGROPE["short_factor"]), long: float32(LONGROPE["long_factor"])}  # type: ignore[arg-type]
    given = {"scaling__original_context_length": 1024, "scaling__attn_factor": attention_factor()}
    yarn = {"scaling__type": "yarn", "scaling__factor": 4.0, "scaling__original_context_length": 1024}
    return [
        pytest.param(None, {}, {}, id="plain"),
        pytest.param(None, {}, {"scaling__type": "none", "scaling__factor": 2.0}, id="none"),
        pytest.param(None, {}, {"scaling__factor": 0.0}, id="zero"),
        pytest.param(LLAMA_3, {"rope_freqs.weight": float32(llama_3_factors())}, {}, id="llama3"),
        pytest.param(LONGROPE, factors, given, id="longrope"),
        pytest.param({"rope_type": "linear", "factor": 8.0}, {}, {"scaling__factor": 8.0}, id="linear unsaid"),
        pytest.param(
            {"rope_type": "linear", "factor": 8.0}, {}, {"scaling__type": "linear", "scaling__factor": 8.0}, id="linear"
        ),
        pytest.param(YARN, {}, yarn, id="yarn"),
        pytest.param(
            {**YARN, "beta_fast": 16.0, "beta_slow": 2.0},
            {},
            {**yarn, "scaling__yarn_beta_fast": 16.0, "scaling__yarn_beta_slow": 2.0},
            id="yarn betas",
        ),
        pytest.param(
            {**YARN, "attention_factor": 0.5 * (1 + 0.1 * math.log(4))},
            {},
            {**yarn, "scaling__attn_factor": 0.5},
            id="yarn attention",
        ),
    ]


@pytest.mark.parametrize(("scaling", "tensors", "metadata"), cases())
def test_angles(
    tmp_path: Path, scaling: dict[str, Any] | None, tensors: dict[str, Any], metadata: dict[str, Any]
) -> None:
    found = angles(config(tmp_path, tensors=tensors, **metadata))
    torch.testing.assert_close(found, angles(original(scaling)), rtol=1e-4, atol=2e-3)


def test_part_of_a_head(tmp_path: Path) -> None:
    assert config(tmp_path, dimension_count=48)["partial_rotary_factor"] == 0.75
    assert "partial_rotary_factor" not in config(tmp_path, dimension_count=64)


@pytest.mark.parametrize("architecture", ["gptneox", "stablelm"])
@pytest.mark.parametrize(
    ("given", "expected"), [({}, 64), ({"dimension_count": 64}, 64), ({"dimension_count": 16}, 16)]
)
def test_families_that_turn_a_part_by_themselves_turn_what_the_file_says(
    tmp_path: Path, architecture: str, given: dict[str, Any], expected: int
) -> None:
    found = config(tmp_path, architecture, **given)
    [rope] = describe_gguf({**found, "intermediate_size": 8}, "model.gguf").ropes
    assert rope.size == expected


@pytest.mark.parametrize("size", range(2, 64, 2))
def test_shares_of_a_head_round_back(tmp_path: Path, size: int) -> None:
    share = config(tmp_path, dimension_count=size)["partial_rotary_factor"]
    assert read_rope({**original(None), "partial_rotary_factor": share}, HEAD_DIM).size == size


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({}, {"dimension_count": 65}, "turns 65 of 64 dimensions"),
        ({}, {"dimension_count": 128}, "turns 128 of 64 dimensions"),
        ({}, {"scaling__type": "spiral"}, "scales rotary positions by 'spiral'"),
        ({}, {"scaling__type": "yarn"}, "'yarn' without a factor"),
        ({}, {"scaling__type": "longrope", "scaling__factor": 4.0}, "'longrope'"),
        ({}, {"scaling__type": 3}, "rope.scaling.type as 3, but it must be text"),
        ({}, {"scaling__factor": -1.0}, "must be a number above 0"),
        ({}, {"scaling__factor": math.nan}, "must be a number above 0"),
        ({}, {"scaling__factor": math.inf}, "must be a number above 0"),
        ({"rope_factors_long.weight": float32([1.0] * 32)}, {}, "has only one of"),
        ({"rope_freqs.weight": float32([1.0] * 31)}, {}, r"float32 of shape \[31\], but float32 of \[32\]"),
        ({"rope_freqs.weight": np.ones(32, dtype=np.float16)}, {}, "is float16 of shape"),
        ({"rope_freqs.weight": float32([1.0] * 31 + [0.0])}, {}, "must hold numbers above 0"),
        ({"rope_freqs.weight": float32([1.0] * 31 + [math.nan])}, {}, "must hold numbers above 0"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, tensors: dict[str, Any], metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        config(tmp_path, tensors=tensors, **metadata)
