"""What embedding needs is decided without any KV."""

import pytest

from quire.config.resolve_embedding import resolve_embedding
from quire.core.errors import ConfigError
from tests.config.examples import BERT, CPU, H100, asked


def test_the_usual() -> None:
    found = resolve_embedding(asked(), BERT, CPU)
    limits = found.limits
    assert (found.dtype, limits.max_num_seqs, limits.max_num_batched_tokens, limits.max_model_len) == (
        "float32", 64, 512, 512,
    )  # fmt: skip
    assert resolve_embedding(asked(), BERT, H100).dtype == "bfloat16"


def test_threads_are_a_cpu_s() -> None:
    assert resolve_embedding(asked(cpu_threads=3), BERT, CPU).cpu_threads == 3
    with pytest.raises(ConfigError, match="--cpu-threads is 3, but the model runs on h100"):
        resolve_embedding(asked(cpu_threads=3), BERT, H100)


def test_the_length_is_what_was_asked_or_trained_or_fits() -> None:
    assert resolve_embedding(asked(), BERT, CPU, 256).limits.max_model_len == 256
    assert resolve_embedding(asked(), BERT, CPU, 1024).limits.max_model_len == 512
    assert resolve_embedding(asked(max_model_len=300), BERT, CPU, 256).limits.max_model_len == 300
    reasons = {choice.name: choice.reason for choice in resolve_embedding(asked(), BERT, CPU, 256).choices}
    assert reasons["max_model_len"] == "what the checkpoint was trained to embed; it has positions for 512"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_model_len": 513}, "--max-model-len is 513, but the checkpoint gives bert 512 tokens"),
        ({"tensor_parallel_size": 2}, "run on one device, and 2 were asked for"),
        ({"load_format": "dummy"}, "--load-format is dummy, which is for models that generate; leave it out to embed"),
        ({"model_impl": "transformers"}, "--model-impl is transformers, which is for models that generate"),
        ({"skip_tokenizer": True}, "--skip-tokenizer is given, but texts are embedded by their tokens; leave it out"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_embedding(asked(**settings), BERT, CPU)
