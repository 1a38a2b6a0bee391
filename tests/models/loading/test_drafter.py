"""A model that drafts, planned for the ranks of a large one: cut as that is, or whole on each where it cannot be."""

from pathlib import Path
from typing import Any

import pytest

from quire.cli.planning import plan_checkpoint
from quire.config.holding import Holding
from quire.config.memory import stages_of, weights_by_stage
from quire.config.resolve import resolve
from quire.config.resolved import DraftPlan
from quire.core.errors import ConfigError
from quire.models.loading.drafter import plan_drafter
from quire.models.loading.header import read_model_facts
from tests.config.examples import H100, LLAMA_3_8B, LLAMA_3_8B_CONFIG, asked
from tests.models.loading.files import write_config

NO_WEIGHTS = Path("large")
SMALL = LLAMA_3_8B_CONFIG | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
NINE_HEADS = SMALL | {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3}


def planned(folder: Path, config: dict[str, Any], ranks: int = 4, **drafting: Any) -> DraftPlan:
    write_config(folder, config)
    settings = {"method": "draft_model", "model": str(folder), **drafting}
    given = asked(tensor_parallel_size=ranks, speculative_config=settings)
    found = plan_drafter(given, NO_WEIGHTS, LLAMA_3_8B, H100)
    assert isinstance(found, DraftPlan)
    choice = next(each for each in resolve(given, LLAMA_3_8B, H100, found).choices if each.name == "speculation")
    how = "cut for all of" if found.resolved.tensor_parallel_size > 1 else "whole on each of"
    assert (f"what drafts is {how} {ranks} ranks" in choice.reason) == (ranks > 1)
    return found


def test_it_is_cut_as_the_model_is_unless_asked_otherwise(tmp_path: Path) -> None:
    cut, same = planned(tmp_path, SMALL), planned(tmp_path, SMALL, draft_tensor_parallel_size=4)
    whole, alone = planned(tmp_path, SMALL, draft_tensor_parallel_size=1), planned(tmp_path, SMALL, ranks=1)
    assert cut == same
    assert (cut.resolved.tensor_parallel_size, whole.resolved.tensor_parallel_size) == (4, 1)
    assert whole.resolved.weight_bytes == alone.resolved.weight_bytes
    norms = 33 * 2048 * 2
    assert (cut.resolved.weight_bytes - norms) * 4 == whole.resolved.weight_bytes - norms
    assert cut.resolved.kv.bytes_per_token * 4 == whole.resolved.kv.bytes_per_token == 16 * 2 * 8 * 64 * 2


def test_heads_that_do_not_divide_stay_together(tmp_path: Path) -> None:
    assert planned(tmp_path, NINE_HEADS).resolved.tensor_parallel_size == 1
    with pytest.raises(ConfigError, match=r"draft_tensor_parallel_size 4, but .* has 9 attention heads, .* give 1"):
        planned(tmp_path, NINE_HEADS, draft_tensor_parallel_size=4)
    with pytest.raises(ConfigError, match="has 3 KV heads, which 4 does not divide; give 1"):
        planned(
            tmp_path,
            SMALL | {"num_key_value_heads": 3, "num_attention_heads": 12, "head_dim": 64},
            draft_tensor_parallel_size=4,
        )


def test_plan_counts_it_on_every_device(tmp_path: Path) -> None:
    small = tmp_path / "small"
    large = tmp_path / "large"
    for folder, config in ((small, SMALL), (large, LLAMA_3_8B_CONFIG)):
        folder.mkdir()
        write_config(folder, config)
    drafting = {"method": "draft_model", "model": str(small)}
    plain = plan_checkpoint(asked(model=str(large), tensor_parallel_size=2), H100)
    cut, whole = (
        plan_checkpoint(asked(model=str(large), tensor_parallel_size=2, speculative_config=drafting | more), H100)
        for more in ({}, {"draft_tensor_parallel_size": 1})
    )
    assert plain.drafter_bytes == 0
    assert 1.9 * cut.drafter_bytes < whole.drafter_bytes < 2 * cut.drafter_bytes
    assert cut.kv_bytes_per_token - plain.kv_bytes_per_token == 16 * 2 * 4 * 64 * 2
    assert whole.kv_bytes_per_token - plain.kv_bytes_per_token == 16 * 2 * 8 * 64 * 2
    assert plain.num_blocks > cut.num_blocks > whole.num_blocks
    for plan in (cut, whole):
        assert plan.budget.total + plan.drafter_bytes == H100.memory_bytes
        assert plan.budget.kv // plan.block_bytes == plan.num_blocks + 1


def test_in_a_pipeline_it_counts_on_the_last_stage(tmp_path: Path) -> None:
    """Which has fewer of the large model's layers than the first, and so room for some of what drafts."""
    small, large = tmp_path / "small", tmp_path / "large"
    config = LLAMA_3_8B_CONFIG | {"tie_word_embeddings": True, "num_hidden_layers": 31}
    for folder, each in ((small, SMALL), (large, config)):
        folder.mkdir()
        write_config(folder, each)
    settings = {"model": str(large), "pipeline_parallel_size": 2}
    drafting = {"method": "draft_model", "model": str(small)}
    plain = plan_checkpoint(asked(**settings), H100)
    with_it = plan_checkpoint(asked(**settings, speculative_config=drafting), H100)
    facts = read_model_facts(str(large))
    given = asked(**settings, speculative_config=drafting)
    found = plan_drafter(given, large, facts, H100)
    assert isinstance(found, DraftPlan)
    first, last = weights_by_stage(facts, Holding("bfloat16"), given.parallel)
    assert with_it.drafter_bytes == found.resolved.weight_bytes - (max(first, last) - last) > 0
    [*_, layers] = stages_of(facts, given.parallel)
    of_last = len(layers) * 2 * 8 * 128 * 2 + 16 * 2 * 8 * 64 * 2
    assert with_it.kv_bytes_per_token == max(plain.kv_bytes_per_token, of_last)
    assert with_it.budget.total + with_it.drafter_bytes == H100.memory_bytes
    assert with_it.resolved is not None
    reason = next(each.reason for each in with_it.resolved.choices if each.name == "speculation")
    assert reason.endswith("what drafts is on the last stage")


def test_plan_tries_remedies_with_it(tmp_path: Path) -> None:
    write_config(tmp_path, LLAMA_3_8B_CONFIG)
    drafting = {"method": "draft_model", "model": str(tmp_path)}
    plan = plan_checkpoint(asked(model=str(tmp_path), speculative_config=drafting), H100, seq_len=None)
    assert plan.fits
    short = plan_checkpoint(
        asked(model=str(tmp_path), speculative_config=drafting, num_gpu_blocks_override=8), H100, seq_len=8192
    )
    assert not short.fits
    assert "without --num-gpu-blocks-override" in [remedy.change for remedy in short.remedies]
