"""Traces: both forms, both units of time, and an error with file, line and value for everything that is wrong."""

from pathlib import Path

import pytest

from quire.core.errors import ConfigError
from quire.simulation.limits import TimeUnit
from quire.simulation.trace import TraceReader
from quire.simulation.workload import SimulatedRequest


def read(
    folder: Path, text: str, name: str = "t.jsonl", unit: TimeUnit = "auto", block: int = 512, limit: int | None = None
) -> list[SimulatedRequest]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return TraceReader(path, unit, block, limit).read()


def test_mooncake_lines(tmp_path: Path) -> None:
    requests = read(
        tmp_path,
        '{"timestamp": 27000, "input_length": 700, "output_length": 52, "hash_ids": [46, 47]}\n'
        "\n"
        '{"timestamp": 30500, "input_length": 600, "output_length": 26, "hash_ids": [46, 99]}\n',
    )
    assert [(r.arrival, r.input_tokens, r.output_tokens) for r in requests] == [(0.0, 700, 52), (3.5, 600, 26)]
    first, second = (r.prompt() for r in requests)
    assert first[:512] == second[:512]
    assert first[512] != second[512]


def test_csv_with_every_column(tmp_path: Path) -> None:
    text = "arrival_time,input_tokens,output_tokens,tenant,priority,hash_ids\n2,10,5,a,-1,\n0.5,20,6,b,3,[a b]\n"
    requests = read(tmp_path, text, "t.csv", block=10)
    assert [(r.arrival, r.tenant, r.priority, r.hash_ids) for r in requests] == [
        (0.0, "b", 3, (0, 1)),
        (1.5, "a", -1, ()),
    ]


@pytest.mark.parametrize(
    ("value", "unit", "arrival"),
    [("1500", "auto", 1.5), ("1.5", "auto", 1.5), ("15", "s", 15.0), ("1500", "ms", 1.5)],
)
def test_unit_of_timestamps(tmp_path: Path, value: str, unit: TimeUnit, arrival: float) -> None:
    zero = "0.0" if "." in value else "0"
    text = f"timestamp,input_length,output_length\n{zero},1,1\n{value},1,1\n"
    assert read(tmp_path, text, "t.csv", unit)[1].arrival == arrival


def test_limit_stops_early(tmp_path: Path) -> None:
    good = '{"arrival_time": 1, "input_length": 1, "output_length": 1}\n'
    assert len(read(tmp_path, good * 3 + "broken\n", limit=3)) == 3


CSV = "arrival_time,input_length,output_length\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_azure_traces(tmp_path: Path) -> None:
    text = AZURE + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:01.5+00:00,2399,6\n"
    found = read(tmp_path, text, "t.csv")
    assert [(request.input_tokens, request.output_tokens) for request in found] == [(2162, 5), (2399, 6)]
    assert [request.arrival for request in found] == pytest.approx([0, 1.49007])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "t.jsonl",
            '{"arrival_time": 1, "input_length": 1, "output_length": 1}\n{oops\n',
            "line 2: '{oops' is not a JSON",
        ),
        ("t.jsonl", "[1, 2]\n", "line 1: .* is not a JSON object"),
        ("t.jsonl", '{"input_length": 1, "output_length": 1}\n', "line 1: arrival_time or timestamp or TIMESTAMP"),
        ("t.jsonl", '{"arrival_time": 1, "output_length": 1}\n', "input_length or input_tokens or ContextTokens"),
        ("t.jsonl", '{"arrival_time": -1, "input_length": 1, "output_length": 1}\n', "arrival_time is -1"),
        ("t.jsonl", '{"arrival_time": true, "input_length": 1, "output_length": 1}\n', "arrival_time is True"),
        ("t.jsonl", '{"arrival_time": 1, "input_length": 0, "output_length": 1}\n', "input_length is 0"),
        ("t.jsonl", '{"arrival_time": 1, "input_length": 2.5, "output_length": 1}\n', "input_length is 2.5"),
        ("t.jsonl", '{"arrival_time": 1, "input_length": 1e30, "output_length": 1}\n', "input_length is 1e"),
        ("t.jsonl", '{"arrival_time": 1, "input_length": 1, "output_length": 1, "tenant": 5}\n', "tenant is 5"),
        ("t.jsonl", '{"arrival_time": 1, "input_length": 1, "output_length": 1, "hash_ids": 5}\n', "hash_ids is 5"),
        ("t.jsonl", '{"arrival_time": 1, "input_length": 9, "output_length": 1, "hash_ids": [1,2]}\n', "--trace-block"),
        ("t.jsonl", '{"arrival_time": 1, "input_length": 1, "output_length": 1, "priority": "x"}\n', "priority is 'x'"),
        ("t.csv", CSV + "1,2,3\n1,2\n", "line 3: 2 columns, but the header has 3"),
        ("t.csv", CSV + "1,2,-3\n", "line 2: output_length is '-3'"),
        ("t.csv", CSV + "nan,2,3\n", "line 2: arrival_time is 'nan'"),
        ("t.csv", CSV + "1,,3\n", "line 2: input_length or input_tokens or"),
        ("t.csv", "when,input_length,output_length\n", "line 1: the header .* has no column arrival_time or timestamp"),
        ("t.csv", "timestamp,input_length,output_length\n5,1,1\n5.5,1,1\n", "line 3: timestamp is 5.5"),
        ("t.csv", AZURE + "noon,1,1\n", "line 2: TIMESTAMP is 'noon'"),
        ("t.csv", CSV, "holds no request"),
        ("t.csv", "", "line 1"),
        ("t.txt", CSV, "must end in .csv or .jsonl"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read(tmp_path, text, name)
    assert str(tmp_path / name) in str(caught.value)


def test_binary_rubbish_is_an_error_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\xff\xfe\x00\x01\n")
    with pytest.raises(ConfigError, match="line 1"):
        TraceReader(path).read()


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.csv cannot be read: No such file"):
        TraceReader(tmp_path / "nowhere.csv").read()
