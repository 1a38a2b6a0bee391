"""`quire serve`: what is wrong with its settings is one line, before anything is loaded."""

import socket

import pytest

from quire.cli.main import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["serve", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_model_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert "/no/such/model" in refused(capsys, "/no/such/model", "--port", "0")


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused(capsys, "--port", str(port))
    assert f"port {port}: another program does" in message
    assert "--port 0 for any free one" in message


def test_a_keys_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no-such-keys.yaml" in refused(capsys, "--port", "0", "--keys", "no-such-keys.yaml")


def test_a_setting_out_of_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--replicas is 0" in refused(capsys, "--port", "0", "--replicas", "0")
