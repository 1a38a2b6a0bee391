"""The same requests through every kind of EngineClient, and through engines that are killed under them."""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quire.core.errors import ConfigError, Unavailable
from quire.core.sampling_params import SamplingParams
from quire.core.shared_secret import read_secret
from quire.engine.llm import LLM
from quire.serving.async_llm import AsyncLLM
from quire.serving.engine_link import EngineAddress, accept, connect
from quire.serving.link import LinkRefused

pytestmark = pytest.mark.anyio
GREEDY = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
BLOCKS = {"num_gpu_blocks_override": 256}


@pytest.fixture(scope="module")
def expected(tiny_chat: Path) -> list[list[int]]:
    llm = LLM(str(tiny_chat), **BLOCKS)
    return [o.outputs[0].token_ids for o in llm.generate([f"prompt {i}" for i in range(6)], GREEDY)]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("a secret of many characters\n")
    return file


async def tokens(llm: AsyncLLM, prompt: str) -> list[int]:
    return [output async for output in llm.generate(prompt, GREEDY)][-1].outputs[0].token_ids


@contextmanager
def engine_host(model: Path, listen: str, secret: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "quire.cli.main", "engine", str(model), "--listen", listen]
    options = ["--engine-secret-file", str(secret), "--num-gpu-blocks-override", "256", *more]
    process = subprocess.Popen([*command, *options])
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(each) for each in text.split()]


async def test_inline(tiny_chat, expected):
    async with await AsyncLLM.create(str(tiny_chat), engines="inline", **BLOCKS) as llm:
        assert await asyncio.gather(*(tokens(llm, f"prompt {i}") for i in range(6))) == expected
        assert llm.fleet.supervisor.slots[0].client.pid == 0


async def test_an_engine_that_can_no_longer_be_heard_is_replaced(tiny_chat, expected, caplog):
    async with await AsyncLLM.create(str(tiny_chat), **BLOCKS) as llm:
        slot = llm.fleet.supervisor.slots[0]
        handle = slot.client._on_message

        def mistake(client, message):
            slot.client._on_message = handle
            raise KeyError("a mistake")

        slot.client._on_message = mistake
        assert await asyncio.gather(*(tokens(llm, f"prompt {i}") for i in range(6))) == expected
        assert slot.restarts == 1
    assert "engine 0 said what cannot be handled; it is replaced" in caplog.text
    assert "what it said cannot be handled: KeyError" in caplog.text


async def test_a_remote_engine_that_is_killed_again_and_again_loses_nothing(tiny_chat, expected, secret, tmp_path):
    address = f"unix://{tmp_path}/engine"
    with engine_host(tiny_chat, address, secret) as host:
        async with await AsyncLLM.create(
            str(tiny_chat), engines=address, engine_secret_file=str(secret), **BLOCKS
        ) as llm:
            for _ in range(2):
                running = [asyncio.ensure_future(tokens(llm, f"prompt {i}")) for i in range(6)]
                await asyncio.sleep(0.02)
                for child in children(host.pid):
                    os.kill(child, signal.SIGKILL)
                assert await asyncio.gather(*running) == expected
            assert llm.fleet.supervisor.slots[0].restarts >= 1


async def test_a_host_that_is_gone_is_an_outage_until_it_is_back(tiny_chat, expected, secret, tmp_path):
    address = f"unix://{tmp_path}/engine"
    settings = {"engines": address, "engine_secret_file": str(secret), "outage_timeout": 1.0, **BLOCKS}
    with engine_host(tiny_chat, address, secret) as host:
        llm = await AsyncLLM.create(str(tiny_chat), **settings)
        host.kill()
    async with llm:
        with pytest.raises(Unavailable, match="no engine has been ready"):
            await tokens(llm, "prompt 0")
        Path(f"{tmp_path}/engine").unlink()
        with engine_host(tiny_chat, address, secret):
            while not llm.fleet.supervisor.is_ready:
                await asyncio.sleep(0.05)
            assert await tokens(llm, "prompt 0") == expected[0]


async def test_two_fronts_of_one_engine_hear_of_their_own_requests_only(tiny_chat, expected, secret, tmp_path):
    address = f"unix://{tmp_path}/engine"
    settings = {"engines": address, "engine_secret_file": str(secret), **BLOCKS}
    with engine_host(tiny_chat, address, secret):
        async with (
            await AsyncLLM.create(str(tiny_chat), **settings) as one,
            await AsyncLLM.create(str(tiny_chat), **settings) as two,
        ):
            fronts = [one, two] * 3
            found = await asyncio.gather(*(tokens(llm, f"prompt {i}") for i, llm in enumerate(fronts)))
            assert found == expected
            stream = one.generate("prompt", SamplingParams(max_tokens=10_000, ignore_eos=True), "left behind")
            await anext(stream)
            await one.close()
            assert await tokens(two, "prompt 1") == expected[1]
            checked = await two.engine_calls.check(two.fleet.supervisor.ready()[0])
            assert (checked.problem, checked.used_blocks) == (None, 0)


async def test_tls_and_its_certificates(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = await accept(reader, writer, b"s" * 16)
        link.send(await link.receive())
        link.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    address = EngineAddress("tls", "localhost", server.sockets[0].getsockname()[1])
    link = await connect(address, b"s" * 16, str(certificate))
    link.send(b"hello")
    assert await link.receive() == b"hello"
    link.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(address, b"s" * 16)
    server.close()


async def test_who_does_not_know_the_secret_is_turned_away(tmp_path):
    refused: list[BaseException] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await accept(reader, writer, b"s" * 16)
        except (LinkRefused, asyncio.IncompleteReadError) as error:
            refused.append(error)
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "engine")
    with pytest.raises(LinkRefused, match="secret"):
        await connect(EngineAddress("unix", path=str(tmp_path / "engine")), b"t" * 16)
    assert isinstance(refused[0], LinkRefused)
    server.close()


async def test_an_engine_that_does_not_know_the_secret_is_not_used(tmp_path):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"quire-engine-1\n" + bytes(32))
        await reader.readexactly(64)
        writer.write(bytes(32))
        writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "engine")
    with pytest.raises(LinkRefused, match="does not know the secret"):
        await connect(EngineAddress("unix", path=str(tmp_path / "engine")), b"t" * 16)
    server.close()


@pytest.mark.parametrize("text", ["", "host:80", "http://host:80", "tcp://host", "unix://relative", "tcp://h:99999"])
def test_addresses_that_are_none(text):
    with pytest.raises(ConfigError, match="tcp://host:port"):
        EngineAddress.read(text)


def test_addresses_are_written_as_they_are_read():
    for text in ("tcp://host:80", "tls://[::1]:7", "unix:///run/quire"):
        assert str(EngineAddress.read(text)) == text


def test_secrets_that_are_none(tmp_path):
    (tmp_path / "short").write_text("abc")
    for file in (None, str(tmp_path / "missing"), str(tmp_path / "short")):
        with pytest.raises(ConfigError):
            read_secret(file)
