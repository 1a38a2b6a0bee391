"""An output file can be cut anywhere and opened again; a file of something else is never touched."""

import json
from pathlib import Path

import pytest

from quire.core.errors import ConfigError
from quire.protocol.batch.lines import BadLine, BatchLine
from quire.protocol.batch.results import ResultFile

A, B = (BatchLine(name, "/v1/completions", {}) for name in "ab")


def result(custom_id: str) -> dict[str, object]:
    return {"custom_id": custom_id, "response": {"status_code": 200, "body": {"text": "é\n"}}, "error": None}


def test_results_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    bad = BadLine(3, None, "invalid_line", "")
    error = {"code": "invalid_line", "message": "", "line": 3}
    with ResultFile(path) as results:
        assert not results.covers(A)
        results.append([result("a"), {"custom_id": None, "response": None, "error": error}])
        results.append([])
    with ResultFile(path) as results:
        assert results.covers(A)
        assert results.covers(bad)
        assert not results.covers(B)
        assert not results.covers(BadLine(4, None, "invalid_line", ""))
        results.append([result("b")])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["custom_id"] for line in lines] == ["a", None, "b"]
    assert all(line["id"].startswith("batch_req_") for line in lines)


def test_a_second_line_of_a_custom_id_does_not_count_for_the_first(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    error = {"code": "duplicate_custom_id", "message": "", "line": 2}
    with ResultFile(path) as results:
        results.append([{"custom_id": "a", "response": None, "error": error}])
    with ResultFile(path) as results:
        assert not results.covers(A)
        assert results.covers(BadLine(2, "a", "duplicate_custom_id", ""))


def test_a_line_cut_anywhere_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultFile(path) as results:
        results.append([result("a"), result("b")])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole)):
        path.write_bytes(whole[:cut])
        with ResultFile(path) as results:
            assert results.covers(A)
            # only the end of the line was missing
            assert results.covers(B) == (cut == len(whole) - 1)
            if not results.covers(B):
                results.append([result("b")])
        assert [json.loads(line)["custom_id"] for line in path.read_bytes().splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    "content",
    [b"my diary", b"my diary\n", b'{"custom_id":"a","body":{}}\n', b"[1]\n", b'{"id": 5', b"\x00\xff", b"null\n"],
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="line 1 is no result of a batch"):
        ResultFile(path)
    assert path.read_bytes() == content


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with ResultFile(tmp_path / "out.jsonl"), pytest.raises(ConfigError, match="another process is writing"):
        ResultFile(tmp_path / "out.jsonl")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write"):
        ResultFile(tmp_path)
