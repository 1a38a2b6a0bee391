"""From what was asked for to requests, whichever dataset they come from."""

from quire.bench.datasets.dataset_config import DatasetConfig, PromptForm
from quire.bench.datasets.json_lines import json_line_requests
from quire.bench.datasets.random_prompts import random_requests
from quire.bench.datasets.sharegpt import sharegpt_requests
from quire.bench.datasets.trace_prompts import trace_requests
from quire.bench.planned import PlannedRequest
from quire.bench.vocabulary import Vocabulary


def make_requests(
    config: DatasetConfig, vocabulary: Vocabulary, usual_form: PromptForm, repeat: int = 0, salt: str = ""
) -> list[PlannedRequest]:
    """The requests of one repeat: random ones differ between repeats, so that no prefix cache knows them.

    A salt changes random tokens and nothing else: lengths and moments stay those of the seed.
    """
    form, seed = config.prompt_form or usual_form, config.seed + repeat
    if config.dataset == "random":
        return random_requests(config, vocabulary, form, seed, salt)
    if config.dataset == "trace":
        return trace_requests(config, vocabulary, form, seed, salt)
    path = config.dataset_path
    assert path is not None
    if config.dataset == "sharegpt":
        return sharegpt_requests(path, vocabulary, config.output_len, config.num_requests, seed)
    return json_line_requests(path, config.output_len, config.num_requests)
