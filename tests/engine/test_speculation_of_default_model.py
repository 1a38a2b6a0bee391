"""The default model answers with every way of drafting as it does without: many prompts, greedy and sampled."""

from typing import Any

import pytest

from quire import LLM, SamplingParams
from tests.scheduler.bookkeeping import AlwaysAll

SUBJECTS = ["rivers", "bridges", "bread", "chess", "glass", "bees", "maps", "salt", "kites", "tides"]
FORMS = [
    "Write a short list of facts about {}.",
    "Explain {} to a child in three sentences.",
    "Repeat this line three times: all about {} and more about {}.",
    "def describe_{}():\n    return '{}'\n\ndef describe_{}():\n    return",
    "Q: What do you know about {}?\nA:",
    "{}, {}, {}, and again: {}, {},",
    "A table of {}:\n| name | kind |\n|---|---|\n| first | {} |\n| second |",
    "Translate to French: I like {}.",
    "Name five words that rhyme with {}.",
    '{{"subject": "{}", "items": ["{} 1", "{} 2", "{}',
]
PROMPTS = [form.replace("{}", subject).replace("{{", "{") for form in FORMS for subject in SUBJECTS]
METHODS: list[dict[str, Any]] = [
    {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1},
    {"method": "suffix", "num_speculative_tokens": 6},
    {"method": "draft_model", "model": "smollm2", "num_speculative_tokens": 3},
]


def answers(prompts: list[str], tokens: int, temperature: float, drafting: dict[str, Any] | None) -> list[list[int]]:
    llm = LLM("smollm2", speculative_config=drafting, max_num_seqs=16)
    params = SamplingParams(temperature=temperature, top_p=0.9, max_tokens=tokens, ignore_eos=True)
    if drafting is not None:
        llm._engine.loop.scheduler._draft_length = AlwaysAll(drafting["num_speculative_tokens"])
    outputs = llm.generate(prompts, params, use_tqdm=False)
    if drafting is not None:
        assert llm._engine.drafts.accepted > len(prompts)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize(
    ("prompts", "tokens"), [(PROMPTS[::17], 24), pytest.param(PROMPTS, 128, marks=pytest.mark.slow)], ids=["few", "all"]
)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_texts_are_the_same(prompts: list[str], tokens: int, temperature: float) -> None:
    plain = answers(prompts, tokens, temperature, None)
    for drafting in METHODS:
        assert answers(prompts, tokens, temperature, drafting) == plain, drafting["method"]
