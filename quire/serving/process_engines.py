"""ProcessEngines: makes the engines of this host: sockets in a folder of theirs, a share of the machine for each."""

import secrets
import shutil
import tempfile

import msgspec
import zmq.asyncio

from quire.config.engine import EngineConfig
from quire.models.loading.locate import locate
from quire.serving.child_process import ChildProcess
from quire.serving.client import OnMessage
from quire.serving.messages import ChildSettings
from quire.serving.process_client import ProcessClient
from quire.serving.shares import replica_share


class ProcessEngines:
    """Every client it makes is a new process, with addresses that no other had."""

    def __init__(
        self,
        config: EngineConfig,
        seed: int,
        tenant_weights: dict[str, float] | None = None,
        begun: list[ChildProcess] | None = None,
        kv_listen: str | None = None,
        kv_secret: bytes | None = None,
    ) -> None:
        """`begun` are processes for the first engines, by number; whoever began them ends those that it still holds.

        `kv_listen` is where engines send KV from, where that is not to this host alone, `kv_secret` what they share.
        """
        locate(config.model.model, config.model.revision)  # downloads are the parent's: a child that waits looks stuck
        self.folder = tempfile.mkdtemp(prefix="quire-")
        """Of sockets and profiles; its mode is 0700, so nobody else reaches them."""
        self.tenant_weights = tenant_weights or {}
        """What engines that are made from now on start with."""
        self._config = config
        self._seed = seed
        self._context = zmq.asyncio.Context()
        self._begun = [] if begun is None else begun
        self._made = 0
        self._kv_listen = kv_listen
        self._kv_secret = kv_secret or secrets.token_bytes(32)

    def settings(self, number: int) -> ChildSettings:
        """Of engine `number` of the server's replicas."""
        self._made += 1
        address = f"ipc://{self.folder}/{self._made}"
        server = self._config.server
        settings = ChildSettings(
            self._config,
            self._seed,
            f"{address}.in",
            f"{address}.out",
            number,
            self.tenant_weights,
            replica_share(number, server.num_local_engines).memory,
            server.role_of(number),
        )
        if not server.exchanges_kv:
            return settings
        listen = self._kv_listen or f"unix://{self.folder}/{self._made}.kv"
        return msgspec.structs.replace(settings, kv_listen=listen, kv_secret=self._kv_secret)

    def client(self, number: int, on_message: OnMessage) -> ProcessClient:
        """The next process of engine `number`."""
        return ProcessClient(
            self.settings(number),
            self._context,
            on_message,
            process=self._begun.pop(0) if self._begun else ChildProcess(),
            step_timeout=self._config.server.step_timeout,
            environment=replica_share(number, self._config.server.num_local_engines).environment,
        )

    def close(self) -> None:
        """Once the clients are closed."""
        self._context.destroy(linger=0)
        shutil.rmtree(self.folder, ignore_errors=True)
