"""--batch-invariant is kept or refused with the reason, never taken and not kept."""

from dataclasses import replace

import pytest

from quire.config.devices import DEVICES
from quire.config.facts import DeviceFacts
from quire.config.resolve import resolve
from quire.config.resolve_embedding import resolve_embedding
from quire.core.errors import ConfigError
from quire.models.loading.header import config_facts
from tests.config.examples import DEEPSEEK_V3_CONFIG, TINY_CONFIG
from tests.config.test_decide_impl import CPU, asked, facts

GPU = DEVICES["h200"]


@pytest.mark.parametrize(("device", "is_kept_by_a_gpu"), [(GPU, True), (CPU, False)])
def test_where_it_is_kept(device: DeviceFacts, is_kept_by_a_gpu: bool) -> None:
    resolved = resolve(asked(batch_invariant=True), facts("quire"), device)
    assert resolved.batch_invariant == is_kept_by_a_gpu
    assert "batch_invariant" in {choice.name for choice in resolved.choices}
    assert not resolve(asked(), facts("quire"), device).batch_invariant


@pytest.mark.parametrize(
    ("settings", "device", "reason"),
    [
        ({"dtype": "float32"}, GPU, "--dtype bfloat16"),
        ({"kv_cache_dtype": "fp8"}, GPU, "--kv-cache-dtype auto"),
        ({"compile": True}, GPU, "--compile"),
        ({"cpu_compute": "exact"}, CPU, "--cpu-compute fast"),
    ],
)
def test_where_it_is_refused(settings: dict[str, object], device: DeviceFacts, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"--batch-invariant cannot be kept here: .*{reason}"):
        resolve(asked(batch_invariant=True, **settings), facts("quire"), device)


def test_experts_multiply_few_tokens_otherwise_than_many() -> None:
    experts = config_facts("mixtral", {**TINY_CONFIG, "model_type": "mixtral"})
    with pytest.raises(ConfigError, match="experts multiply few tokens in another order"):
        resolve(asked(batch_invariant=True), experts, GPU)


def test_latents_are_attended_to_in_another_order_by_batch() -> None:
    """Where no layer has experts, which are another obstacle."""
    sizes = {"num_hidden_layers": 2, "first_k_dense_replace": 2, "quantization_config": None}
    dense = config_facts("v3", DEEPSEEK_V3_CONFIG | sizes)
    with pytest.raises(ConfigError, match="kernels of latent attention change the order of their sums"):
        resolve(asked(batch_invariant=True), dense, DEVICES["h200"])


def test_models_of_which_quire_cannot_say_in_which_order_they_sum() -> None:
    with pytest.raises(ConfigError, match="transformers' modules"):
        resolve(asked(batch_invariant=True), facts("transformers"), GPU)
    packed = replace(facts("quire"), dtype="Q4_0")
    with pytest.raises(ConfigError, match="--packed-weights expand"):
        resolve(asked(batch_invariant=True, packed_weights="keep"), packed, GPU)
    with pytest.raises(ConfigError, match="opened for embeddings"):
        resolve_embedding(asked(batch_invariant=True), facts("quire"), CPU)
