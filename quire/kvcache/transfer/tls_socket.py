"""TlsSocket: a TLS connection that one thread reads while another writes. OpenSSL allows one of them at a time."""

import select
import ssl
from threading import Lock
from typing import Any


class TlsSocket(ssl.SSLSocket):
    """For `SSLContext.sslsocket_class`. Who waits for bytes holds nobody up."""

    _one_at_a_time: Lock

    def __new__(cls, *args: Any, **settings: Any) -> "TlsSocket":
        made = super().__new__(cls, *args, **settings)
        made._one_at_a_time = Lock()
        return made

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        while True:
            with self._one_at_a_time:
                if self._is_readable(0.0):
                    return super().recv_into(buffer, nbytes, flags)
            if not self._is_readable(self.gettimeout()):
                raise TimeoutError("the other side says nothing")

    def send(self, data: Any, flags: int = 0) -> int:
        with self._one_at_a_time:
            return super().send(data, flags)

    def _is_readable(self, seconds: float | None) -> bool:
        if self.pending():  # decrypted already
            return True
        waiting = select.poll()
        waiting.register(self, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))
