"""SharedPort: one listening socket for each front on the same port, so that the kernel shares out connections.

The hub holds the sockets too. A connection that waits to be accepted by a front that dies is accepted by the next.
"""

import socket
from contextlib import closing
from dataclasses import replace

from quire.config.listening import ListenConfig
from quire.server.listen.address import bind, url_of


class SharedPort:
    """Fronts by number."""

    def __init__(self, config: ListenConfig) -> None:
        """Raises a ConfigError where the port is taken, also by a server that would share it."""
        self._config = config
        self._path: socket.socket | None = None
        with closing(bind(config)) as alone:
            if config.uds is not None:
                self._path = alone.dup()  # one path is one socket, which all fronts listen on
            else:
                self._config = replace(config, port=alone.getsockname()[1])
        self._sockets: dict[int, socket.socket] = {}
        self.url = url_of(self.socket(0), config)

    def socket(self, front: int) -> socket.socket:
        """On which a front listens."""
        if self._path is not None:
            return self._path
        if front not in self._sockets:
            self._sockets[front] = bind(self._config, shares_port=True)
        return self._sockets[front]

    def give_up(self, front: int) -> None:
        """A front does not come back soon: connections go to the others until `socket` is called for it again."""
        taken = self._sockets.pop(front, None)
        if taken is not None:
            taken.close()

    def close(self) -> None:
        for front in list(self._sockets):
            self.give_up(front)
        if self._path is not None:
            self._path.close()
