"""What speculative decoding can be asked for, in every form, and what is refused by name."""

from pathlib import Path

import pytest

from quire.cli.yaml_settings import read_settings
from quire.config.engine import EngineConfig
from quire.config.speculation import Speculation, read_speculation, with_method
from quire.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"method": "ngram"}', Speculation("ngram", 4, 2, 5)),
        ('{"method": "ngram", "num_speculative_tokens": 7}', Speculation("ngram", 7, 2, 5)),
        ('{"method": "ngram", "prompt_lookup_max": 1}', Speculation("ngram", 4, 1, 1)),
        ('{"method": "ngram", "prompt_lookup_min": 6}', Speculation("ngram", 4, 6, 6)),
        ('{"method": "ngram", "prompt_lookup_min": 3, "prompt_lookup_max": 4}', Speculation("ngram", 4, 3, 4)),
        ('{"method": "suffix"}', Speculation("suffix")),
        (
            '{"method": "suffix", "suffix_decoding_max_tree_depth": 9}',
            Speculation("suffix", suffix_decoding_max_tree_depth=9),
        ),
        ('{"method": "draft_model", "model": "small"}', Speculation("draft_model", model="small")),
        ('{"method": "deepseek_mtp"}', Speculation("mtp")),
        ('{"method": "glm4_moe_mtp", "num_speculative_tokens": 1}', Speculation("mtp", 1)),
        ('{"model": "ngram"}', Speculation("ngram")),
        ('{"method": null, "model": "[ngram]", "prompt_lookup_max": 3}', Speculation("ngram", 4, 2, 3)),
        ('{"model": "small", "num_speculative_tokens": 3}', Speculation("", 3, model="small")),
        ('{"method": "suffix", "disable_by_batch_size": 1}', Speculation("suffix", disable_by_batch_size=1)),
    ],
)
def test_it_is_read(text: str, expected: Speculation) -> None:
    assert read_speculation(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("ngram", "is no JSON"),
        ("[]", "must be an object"),
        ("{}", "has neither a method nor a model; quire has ngram"),
        ('{"prompt_lookup_max": 3}', "has neither a method nor a model"),
        ('{"method": ""}', "has the method ''; quire has ngram"),
        ('{"model": ""}', "has an empty model"),
        ('{"model": "small", "prompt_lookup_max": 3}', "'prompt_lookup_max', which a model without a method does not"),
        ('{"method": 3}', "has the method 3; quire has ngram"),
        ('{"method": "lookahead"}', "has the method 'lookahead'; quire has ngram"),
        ('{"method": "ngrams"}', "Did you mean 'ngram'"),
        ('{"method": "ngram", "num_speculative_token": 4}', "'num_speculative_token', which the method ngram does not"),
        ('{"method": "ngram", "num_speculative_tokens": 0}', "num_speculative_tokens 0; it must be 1 to 32"),
        ('{"method": "ngram", "num_speculative_tokens": 33}', "must be 1 to 32"),
        ('{"method": "ngram", "num_speculative_tokens": true}', "must be a whole number"),
        ('{"method": "ngram", "num_speculative_tokens": "4"}', "must be a whole number"),
        ('{"method": "ngram", "prompt_lookup_min": 4, "prompt_lookup_max": 3}', "prompt_lookup_min 4; it must be 1 to"),
        ('{"method": "ngram", "prompt_lookup_max": 99}', "must be 1 to 32"),
        ('{"method": "ngram", "model": "x"}', "'model', which the method ngram does not take"),
        ('{"method": "suffix", "suffix_decoding_max_cached_requests": 0}', "must be 1 to 1024"),
        ('{"method": "suffix", "suffix_decoding_min_token_prob": 0.1}', "no method takes: drafts are what followed"),
        ('{"method": "suffix", "suffix_decoding_max_spec_factor": 2.0}', "no method takes: how many drafts pay"),
        ('{"method": "draft_model", "model": "x", "quantization": "fp8"}', "no method takes: --quantization is for"),
        ('{"method": "draft_model", "model": "x", "revision": "main"}', "no method takes: download the revision"),
        ('{"method": "eagle", "model": "x", "speculative_token_tree": "[(0,)]"}', "no method takes: drafts of a seq"),
        ('{"method": "ngram", "disable_by_batch_size": 0}', "disable_by_batch_size 0; it must be 1 or more"),
        ('{"method": "ngram", "disable_by_batch_size": 2.5}', "disable_by_batch_size 2.5; it must be a whole number"),
        ('{"method": "ngram", "speculative_disable_by_batch_size": 4}', "Did you mean 'disable_by_batch_size'"),
        ('{"method": "draft_model"}', "has the method draft_model and no model"),
        ('{"method": "draft_model", "model": 7}', "model 7; it must be text"),
        ('{"method": "mtp", "draft_tensor_parallel_size": 0}', "draft_tensor_parallel_size 0; it must be 1 or the"),
        ('{"method": "mtp", "draft_tensor_parallel_size": "2"}', "must be a whole number"),
        ('{"method": "ngram", "draft_tensor_parallel_size": 1}', "which the method ngram does not take"),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_speculation(text)


def test_a_method_that_is_found_out_is_filled_in() -> None:
    given = '{"method": null, "model": "x", "num_speculative_tokens": 2}'
    assert read_speculation(with_method(given, "eagle")) == Speculation("eagle", 2, model="x")
    assert read_speculation(with_method(given, "mtp")) == Speculation("mtp", 2)


def test_it_comes_as_a_dictionary_or_as_json() -> None:
    settings = {"method": "ngram", "num_speculative_tokens": 3}
    for given in (settings, '{"method": "ngram", "num_speculative_tokens": 3}'):
        config = EngineConfig.from_flat(speculative_config=given)
        assert config.scheduler.speculation() == Speculation("ngram", 3)
        assert (config.scheduler.num_drafts, config.scheduler.num_lookahead_tokens) == (3, 6)
    with pytest.raises(ConfigError, match="speculative_config is"):
        EngineConfig.from_flat(speculative_config=3)


def test_a_file_has_it_as_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "quire.yaml"
    path.write_text("speculative_config:\n  method: ngram\n  num_speculative_tokens: 2\n")
    assert EngineConfig.from_flat(**read_settings(path)).scheduler.num_drafts == 2
