"""Bodies of /classify and /pooling, as clients of vLLM write them."""

from dataclasses import dataclass, field

from quire.core.pooling import POOLING_TASKS, POOLINGS, Pooling, PoolingTask
from quire.protocol.ignored import Ignored
from quire.protocol.openai.body import read_truncation
from quire.protocol.openai.embedding_body import (
    ACTIVATION,
    FORMATS,
    LONGEST_PROMPT_NAME,
    MOST_DIMENSIONS,
    SHARED,
    UNSUPPORTED_OF_TEXTS,
    VECTOR_FIELDS,
    read_flag,
)
from quire.protocol.openai.fields import Fields, object_of
from quire.protocol.openai.options import LONGEST_MODEL, read_labels
from quire.protocol.openai.prompts import PROMPTS, read_prompts
from quire.protocol.openai.schema import Schema, words

CLASSIFY_FIELDS: dict[str, Schema] = {"input": PROMPTS, **SHARED, **ACTIVATION}
"""Every field of a classify body, and what may stand in it."""
POOLING_FIELDS: dict[str, Schema] = {
    "input": PROMPTS,
    "task": words(
        *POOLING_TASKS,
        description="Left out: classify for a classifier, else token_embed, a vector for every token.",
    ),
    **SHARED,
    **ACTIVATION,
    **VECTOR_FIELDS,
}
"""Every field of a pooling body, and what may stand in it."""
_UNSUPPORTED = {
    **UNSUPPORTED_OF_TEXTS,
    "activation": "it is called use_activation here",
    "softmax": "it is called use_activation here",
}
_UNSUPPORTED_OF_CLASSES = {**_UNSUPPORTED, "prompt_name": "classifiers read texts as they are; leave it out"}


@dataclass(frozen=True, slots=True)
class ClassifyBody:
    """A body of /classify."""

    model: str | None
    inputs: list[str | list[int]]
    use_activation: bool = True
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolingBody:
    """A body of /pooling; None is what was not given."""

    model: str | None
    inputs: list[str | list[int]]
    task: PoolingTask | None = None
    base64: bool = False
    dimensions: int | None = None
    normalize: bool | None = None
    pooling: Pooling | None = None
    use_activation: bool | None = None
    prompt_name: str | None = None
    add_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    labels: dict[str, str] = field(default_factory=dict)


def read_classify_body(values: object, ignored: Ignored | None = None) -> ClassifyBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(
        object_of(values), known=CLASSIFY_FIELDS, unsupported=_UNSUPPORTED_OF_CLASSES, ignored=ignored or Ignored()
    )
    return ClassifyBody(
        model=body.text("model", longest=LONGEST_MODEL),
        inputs=read_prompts("input", body.get("input")),
        use_activation=body.flag("use_activation", True),
        add_special_tokens=body.flag("add_special_tokens", True),
        truncate_prompt_tokens=read_truncation(body),
        labels=read_labels(body),
    )


def read_pooling_body(values: object, ignored: Ignored | None = None) -> PoolingBody:
    """Raises an InvalidRequest that names the field for anything that cannot be honoured."""
    body = Fields(object_of(values), known=POOLING_FIELDS, unsupported=_UNSUPPORTED, ignored=ignored or Ignored())
    body.one_of("task", POOLING_TASKS)
    body.one_of("pooling", POOLINGS)
    return PoolingBody(
        model=body.text("model", longest=LONGEST_MODEL),
        inputs=read_prompts("input", body.get("input")),
        task=body.get("task"),
        base64=body.one_of("encoding_format", FORMATS) == "base64",
        dimensions=body.whole("dimensions", 1, MOST_DIMENSIONS),
        normalize=read_flag(body, "normalize"),
        pooling=body.get("pooling"),
        use_activation=read_flag(body, "use_activation"),
        prompt_name=body.text("prompt_name", shortest=1, longest=LONGEST_PROMPT_NAME),
        add_special_tokens=body.flag("add_special_tokens", True),
        truncate_prompt_tokens=read_truncation(body),
        labels=read_labels(body),
    )
