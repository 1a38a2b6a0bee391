"""Answer words: a causal LM as a classifier, by the logits of the words it would answer with, as a config.json asks for
it in vLLM's `classifier_from_token`. Torch-free."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire.config.model import ModelImpl
from quire.core.errors import CheckpointError
from quire.core.nearest import did_you_mean
from quire.models.families.dimensions import text_values
from quire.models.loading.json_object import read_json_object
from quire.models.registry import describe
from quire.spec.matrix import MatrixSpec
from quire.spec.model import ClassifierSpec, ModelSpec
from quire.spec.share import AxisShare

_FIELD = "classifier_from_token"
_TOKENIZER = "tokenizer.json"
_CLASSIFIER, _GENERATOR = "ForSequenceClassification", "ForCausalLM"


def read_answer_words(config: Mapping[str, Any], source: str) -> tuple[str, ...]:
    """The word whose logit is the score, perhaps behind the one whose logit is subtracted; empty where a config asks
    for neither."""
    words = text_values(config).get(_FIELD)
    if words is None:
        return ()
    are_words = isinstance(words, list) and all(isinstance(word, str) and word for word in words)
    if not are_words or not 1 <= len(set(words)) == len(words) <= 2:
        raise CheckpointError(
            f'{source} gives {_FIELD} as {str(words)[:80]}, but it must be one word, as in ["Yes"], or two different '
            'ones, the one that stands for a match last, as in ["no", "yes"]; correct it there.'
        )
    return tuple(words)


def describe_causal_lm(config: Mapping[str, Any], source: str, impl: ModelImpl) -> ModelSpec:
    """The model as it was trained, with an output head, whatever architecture it is to be served as."""
    given = config.get("architectures")
    named = given if isinstance(given, list) else []
    names = [str(name).replace(_CLASSIFIER, _GENERATOR) for name in named]
    spec = describe({**config, "architectures": names}, source, impl)
    if not spec.is_described:
        raise CheckpointError(
            f"{source} gives {_FIELD}, which takes a causal LM of quire's own families, and this {spec.architecture} "
            "runs through transformers' modules; leave it out."
        )
    return spec


def answer_token_ids(words: Sequence[str], folder: Path, source: str) -> tuple[int, ...]:
    """The token that each word is, by the vocabulary in `folder`."""
    path = folder / _TOKENIZER
    if not path.is_file():
        raise CheckpointError(
            f"{source} gives {_FIELD}, and {folder} holds no {_TOKENIZER} to look the words up in; download it from "
            "the model's page."
        )
    vocabulary = _vocabulary(path)
    for word in words:
        if word not in vocabulary:
            raise CheckpointError(
                f"{source} gives {_FIELD} as {list(words)}, but {word!r} is no single token of {path}; give words as "
                f"they are spelled there.{did_you_mean(word, vocabulary)}"
            )
    return tuple(vocabulary[word] for word in words)


def scored_by_answer(spec: ModelSpec, words: Sequence[str], ids: Sequence[int], source: str) -> ModelSpec:
    """The classifier that a causal LM is by these words: of its output head it keeps their rows."""
    if not spec.generates:
        raise CheckpointError(
            f"{source} gives {_FIELD}, whose rows are the output head's, and this {spec.architecture} has none; leave "
            "it out, or download the model again."
        )
    if max(ids) >= spec.vocab_size:
        raise CheckpointError(
            f"{source} gives {_FIELD} as {list(words)}, but token {max(ids)} lies beyond the {spec.vocab_size} of the "
            "model; the tokenizer and the weights do not belong together."
        )
    head = None if spec.head is None else _rows(spec.head, ids)
    classifier = ClassifierSpec((words[-1],), "last", head, answer_ids=tuple(ids))
    return replace(spec.without_head(), classifier=classifier)


def _rows(head: MatrixSpec, ids: Sequence[int]) -> MatrixSpec:
    [part] = head.parts
    share = AxisShare(part.rows, tuple(range(number, number + 1) for number in ids))
    return replace(head, parts=(replace(part, rows=len(ids), share=share),), cut="none", words=True)


def _vocabulary(path: Path) -> dict[str, int]:
    """Tokens as they are spelled: in BPE and WordPiece by their ids, in Unigram in their order, and added ones."""
    read = read_json_object(path)
    model, added = read.get("model"), read.get("added_tokens") or []
    tokens = model.get("vocab") if isinstance(model, dict) else None
    try:
        found = (
            dict(tokens) if isinstance(tokens, dict) else {each[0]: place for place, each in enumerate(tokens or ())}
        )
        return found | {token["content"]: token["id"] for token in added}
    except (TypeError, KeyError, IndexError):
        raise CheckpointError(f"{path} holds no vocabulary of tokens and ids; download it again.") from None
