"""How many kinds of schemas are honoured, and that those are kept by a model of random weights, five times each."""

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from quire import LLM, InvalidRequest, SamplingParams
from quire.core.structured import StructuredOutput
from quire.engine.grammar.checker import GrammarChecker
from quire.sampling.grammar.errors import GrammarError
from tests.sampling.grammar.schemas import all_schemas
from tests.sampling.grammar.vocabulary import vocabulary
from tests.tiny_chat import write_tiny_chat

SEEDS = 5
LEAST_ACCEPTED = 0.95
"""Of the collection; what is refused is written down in REFUSED, so that a new refusal is seen."""
REFUSED = {
    "propertyNames",
    "uniqueItems",
    "contains",
    "not",
    "if",
    "oneOf",
    "$ref",
    "maxProperties",
}
"""Keywords that may be the reason of a refusal."""


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder: Path = write_tiny_chat(tmp_path_factory.mktemp("coverage") / "tiny")
    model = LLM(str(folder), num_gpu_blocks_override=2048, max_num_seqs=64)
    yield model
    model.close()


def test_the_collection_is_large_and_sound() -> None:
    schemas = all_schemas()
    assert len(schemas) >= 200
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.slow
def test_what_is_not_strict_is_refused_only_where_nothing_satisfies_it() -> None:
    checker, refused = GrammarChecker(vocabulary), []
    for schema in all_schemas().values():
        try:
            checker.check(StructuredOutput(json=json.dumps(schema), strict=False))
        except GrammarError as error:
            refused.append(str(error))
    checker.close()
    assert all("Unsatisfiable" in message or "/$ref" in message for message in refused), refused
    assert len(refused) == 2


@pytest.mark.slow
def test_what_is_accepted_is_kept(llm: LLM) -> None:
    refused: dict[str, str] = {}
    broken: list[tuple[str, str]] = []
    unfinished, checked = 0, 0
    for name, schema in all_schemas().items():
        try:
            params = SamplingParams(temperature=1.0, n=SEEDS, seed=11, max_tokens=230, structured=schema)
            [output] = llm.generate("{", params, use_tqdm=False)
        except InvalidRequest as error:
            refused[name] = str(error)
            continue
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
        )
        for sequence in output.outputs:
            assert sequence.finish_reason in ("stop", "length"), (name, sequence)
            if sequence.finish_reason == "length":
                unfinished += 1
                continue
            checked += 1
            broken += [(name, error.message) for error in validator.iter_errors(json.loads(sequence.text))]
    accepted = 1 - len(refused) / len(all_schemas())
    print(f"{accepted:.1%} of {len(all_schemas())} accepted; {checked} texts valid, {unfinished} cut off by length")
    for name, message in refused.items():
        print(f"{name}: {message[:150]}")
    assert not broken
    assert accepted >= LEAST_ACCEPTED
    unsupported = [message for message in refused.values() if "Unsatisfiable" not in message]
    assert all(any(f"/{keyword} " in message for keyword in REFUSED) for message in unsupported), refused
    assert checked > SEEDS * len(all_schemas()) * 0.6
