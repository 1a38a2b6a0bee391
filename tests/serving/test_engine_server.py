"""What an engine's log says of connections that never become fronts."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from quire.config.engine import EngineConfig
from quire.observe.metrics import Metrics
from quire.serving.engine_link import EngineAddress
from quire.serving.engine_server import EngineServer
from quire.serving.process_engines import ProcessEngines

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("said", "warnings"), [(b"", 0), (b"GET / HTTP/1.1\r\n\r\n", 1)], ids=["probe", "stranger"])
async def test_probes_do_not_fill_the_log(
    tiny_chat: Path, caplog: pytest.LogCaptureFixture, said: bytes, warnings: int
) -> None:
    engines = ProcessEngines(EngineConfig.from_flat(model=str(tiny_chat), num_gpu_blocks_override=64), 3)
    address = EngineAddress("unix", path=os.path.join(engines.folder, "engine"))
    server = EngineServer(
        lambda on_message: engines.client(0, on_message), address, b"s" * 16, metrics=Metrics("m", 1), step_timeout=60
    )
    caplog.set_level(logging.DEBUG, "quire.serving.engine_server")
    try:
        await server.start()
        reader, writer = await asyncio.open_unix_connection(address.path)
        writer.write(said)
        writer.write_eof()
        await reader.read()  # until the engine has turned it away
        writer.close()
        told = [record for record in caplog.records if "a connection was" in record.getMessage()]
        assert len(told) == 1
        assert sum(record.levelno >= logging.WARNING for record in told) == warnings
    finally:
        await server.close()
        engines.close()
