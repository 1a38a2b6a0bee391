"""`quire serve`: what is wrong with its settings is one line, before anything is loaded."""

import socket
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("options", [[], ["--replicas", "2"], ["--api-server-count", "2"], ["--engines", "inline"]])
def test_an_engine_that_cannot_start_is_told_once(tiny_chat: Path, options: list[str]) -> None:
    command = [sys.executable, "-m", "quire", "serve", str(tiny_chat), "--port", "0", "--num-gpu-blocks-override", "1"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    *before, last = done.stderr.splitlines()
    assert last.startswith("quire: error: the model does not fit: KV has 1 block ")
    assert "any one of these makes it fit: without --num-gpu-blocks-override (" in last
    assert not [line for line in before if "ERROR" in line or "does not fit" in line or "Traceback" in line]
