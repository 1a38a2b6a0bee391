"""The default model answers with every way of drafting as it does without: many prompts, greedy and sampled."""

from functools import cache
from typing import Any

import pytest

from quire import LLM, SamplingParams
from tests.engine.random_heads import HEADS, random_head
from tests.scheduler.bookkeeping import AlwaysAll

MODEL = "smollm2"
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
METHODS: dict[str, dict[str, Any]] = {
    "ngram": {"num_speculative_tokens": 4, "prompt_lookup_min": 1},
    "suffix": {"num_speculative_tokens": 6},
    "draft_model": {"model": MODEL, "num_speculative_tokens": 3},
    **{kind: {"num_speculative_tokens": 2} for kind in HEADS},
}
Drafting = tuple[tuple[str, Any], ...]


@cache
def answers(every: int, tokens: int, temperature: float, compute: str, drafting: Drafting = ()) -> list[list[int]]:
    """To each prompt, or to one of so many. Those without drafts are made once for all methods."""
    asked = dict(drafting) or None
    # one thread: where the machine has other work, torch's many small operations would wait for a second one each time
    llm = LLM(MODEL, speculative_config=asked, max_num_seqs=16, cpu_compute=compute, cpu_threads=1)
    params = SamplingParams(temperature=temperature, top_p=0.9, max_tokens=tokens, ignore_eos=True)
    if asked is not None:
        llm._engine.loop.scheduler._draft_length = AlwaysAll(asked["num_speculative_tokens"])
    outputs = llm.generate(PROMPTS[::every], params, use_tqdm=False)
    if asked is not None:
        drafts, is_random = llm._engine.drafts, asked["method"] in HEADS
        assert drafts.tokens > len(outputs)
        assert is_random or drafts.accepted > len(outputs)
    llm.close()
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.fixture(scope="module", params=list(METHODS))
def drafting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Drafting:
    asked = {"method": request.param, **METHODS[request.param]}
    if request.param in HEADS:
        asked["model"] = str(random_head(request.param, MODEL, tmp_path_factory.mktemp(request.param)))
    return tuple(asked.items())


@pytest.mark.parametrize(
    ("every", "tokens", "temperature", "compute"),
    [
        (17, 24, 0.0, "fast"),
        (17, 24, 0.7, "fast"),
        pytest.param(1, 128, 0.0, "fast", marks=pytest.mark.slow),
        pytest.param(1, 128, 0.7, "fast", marks=pytest.mark.slow),
        pytest.param(1, 128, 0.0, "exact", marks=pytest.mark.slow),
    ],
)
def test_texts_are_the_same(drafting: Drafting, every: int, tokens: int, temperature: float, compute: str) -> None:
    """A head's weights are random, as whatever it drafts must change nothing; heads that are right are in
    tests/worker/test_draft_heads.py."""
    plain = answers(every, tokens, temperature, compute)
    assert answers(every, tokens, temperature, compute, drafting) == plain
