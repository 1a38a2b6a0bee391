"""Every line of a batch is a request or a named mistake."""

import json
from typing import Any

import pytest

from quire.protocol.batch.lines import BadLine, BatchLine, read_lines

GOOD: dict[str, Any] = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}


def line(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode() + b"\n"


def test_requests_come_in_order_and_blank_lines_are_nothing() -> None:
    found = list(read_lines([line(), b"\n", b"  \n", line(custom_id="b", url="/v1/chat/completions")]))
    assert found == [
        BatchLine("a", "/v1/completions", {"prompt": "x"}),
        BatchLine("b", "/v1/chat/completions", {"prompt": "x"}),
    ]


@pytest.mark.parametrize(
    ("bad", "custom_id", "message"),
    [
        (b"{", None, "not JSON"),
        (b"\xff\n", None, "not JSON"),
        (b"[]", None, "not a JSON object"),
        (line(custom_id=5), None, "custom_id is 5"),
        (line(custom_id=""), None, "custom_id is ''"),
        (line(method="GET"), "a", "method is 'GET'; it must be POST"),
        (line(url="/v1/images"), "a", "url is '/v1/images'"),
        (line(extra=1), "a", "extra is not supported"),
    ],
)
def test_a_bad_line_says_what_is_wrong(bad: bytes, custom_id: str | None, message: str) -> None:
    (found,) = read_lines([bad])
    assert isinstance(found, BadLine)
    assert (found.number, found.custom_id, found.code) == (1, custom_id, "invalid_line")
    assert message in found.message
    assert "line 1" in found.message


def test_a_second_line_of_a_custom_id_is_bad() -> None:
    first, second = read_lines([line(), line(body={})])
    assert isinstance(first, BatchLine)
    assert isinstance(second, BadLine)
    assert (second.number, second.code) == (2, "duplicate_custom_id")
    assert "of line 1" in second.message
