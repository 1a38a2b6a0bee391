"""A network between a router and an instance that can be cut: a TCP proxy, in a thread of its own.

Open, it passes bytes on. Cut, it resets what runs and refuses what comes. Silent, it takes connections and bytes and
passes nothing on, as a cable does that was pulled.
"""

import asyncio
import contextlib
import socket
import threading
from enum import Enum


class Network(Enum):
    """What becomes of bytes."""

    OPEN = "open"
    CUT = "cut"
    SILENT = "silent"


class CutProxy:
    """One address for another."""

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._network = Network.OPEN
        self._writers: set[asyncio.StreamWriter] = set()
        self._opened = asyncio.Event()
        self._opened.set()
        self._loop = asyncio.new_event_loop()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set(self, network: Network) -> None:
        self._loop.call_soon_threadsafe(self._change, network)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, sock=self._listening))
        self._loop.run_forever()
        self._loop.close()

    def _end(self) -> None:
        self._server.close()
        self._change(Network.CUT)
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        asyncio.gather(*tasks, return_exceptions=True).add_done_callback(lambda _: self._loop.stop())
        if not tasks:
            self._loop.stop()

    def _change(self, network: Network) -> None:
        self._network = network
        if network is Network.SILENT:
            self._opened.clear()
        else:
            self._opened.set()
        if network is Network.CUT:
            for writer in list(self._writers):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._network is Network.CUT:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        try:
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(there, writer))
        finally:
            for each in (writer, back):
                self._writers.discard(each)
                each.transport.abort()

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._opened.wait()
                target.write(data)
                await target.drain()
            await self._opened.wait()
            target.write_eof()
