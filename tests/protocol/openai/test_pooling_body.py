"""Bodies of /classify and /pooling."""

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.openai.pooling_body import read_classify_body, read_pooling_body


def test_classify() -> None:
    body = read_classify_body({"input": ["a", [1]], "use_activation": False})
    assert (body.inputs, body.use_activation) == (["a", [1]], False)
    assert read_classify_body({"input": "a"}).use_activation


def test_pooling() -> None:
    body = read_pooling_body({"input": "a", "task": "embed", "encoding_format": "base64", "prompt_name": "query"})
    assert (body.task, body.base64, body.prompt_name) == ("embed", True, "query")
    assert (body.normalize, body.use_activation, body.pooling) == (None, None, None)


@pytest.mark.parametrize("name", ["messages", "softmax", "activation", "embed_dtype", "endianness"])
def test_what_clients_may_expect_is_refused_with_a_reason(name: str) -> None:
    for read in (read_classify_body, read_pooling_body):
        with pytest.raises(InvalidRequest, match=f"{name} is not supported: "):
            read({"input": "a", name: 1})
