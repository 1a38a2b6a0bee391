"""MediaFetcher: the bytes behind a URL. Data URLs always; other places only where the server was told so.

A host's addresses are looked up once, all of them must be public, and the connection goes to the one that was checked,
so that a name cannot mean another address the second time. Redirects are not followed.
"""

import base64
import binascii
import http.client
import ipaddress
import socket
import ssl
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Timer
from urllib.parse import SplitResult, unquote, unquote_to_bytes, urlsplit

from quire.config.multimodal import MultimodalConfig
from quire.core.errors import InvalidRequest

_PORTS = {"http": 80, "https": 443}
_PIECE = 1 << 16
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_SHOWN = 80
_OK = 200
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class MediaFetcher:
    """Safe in several threads."""

    def __init__(self, config: MultimodalConfig) -> None:
        self._config = config
        self._most = int(config.media_max_mb * (1 << 20))
        local = config.allowed_local_media_path
        self._folder = None if local is None else Path(local).expanduser().resolve()

    def load(self, url: str, field: str) -> bytes:
        """Raises an InvalidRequest that names the field."""
        try:
            place = urlsplit(url) if url[:5].lower() != "data:" else None
        except ValueError:
            raise _refused(field, url, "it is no URL") from None
        if place is None:
            return self._inline(url, field)
        if place.scheme in _PORTS:
            return self._fetched(place, url, field)
        if place.scheme == "file":
            return self._local(place, url, field)
        raise _refused(
            field, url, "use a data URL (data:image/png;base64,...), or https where the server allows its host"
        )

    def _inline(self, url: str, field: str) -> bytes:
        head, comma, data = url[5:].partition(",")
        if not comma:
            raise _refused(field, url, "a data URL has a comma before its data")
        if len(data) > 4 * self._most:
            raise self._too_large(field)
        if not head.lower().endswith(";base64"):
            return self._bounded(unquote_to_bytes(data), field)
        try:
            found = base64.b64decode(data.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise _refused(field, url, "its data is not base64") from None
        return self._bounded(found, field)

    def _local(self, place: SplitResult, url: str, field: str) -> bytes:
        if self._folder is None:
            raise _refused(
                field, url, "files of the server are read only below --allowed-local-media-path, which is not set"
            )
        found: bytes | None = None
        with suppress(OSError, ValueError):
            path = Path(unquote(place.path)).resolve()
            if place.netloc in ("", "localhost") and path.is_relative_to(self._folder) and path.is_file():
                with path.open("rb") as file:
                    found = file.read(self._most + 1)
        if found is None:
            raise _refused(field, url, "there is no such file below --allowed-local-media-path")
        return self._bounded(found, field)

    def _fetched(self, place: SplitResult, url: str, field: str) -> bytes:
        if not self._config.domains:
            raise _refused(
                field, url, "this server fetches no URLs (--allowed-media-domains); send the image as a data URL"
            )
        host, port = self._host(place, url, field)
        address = _public_address(host, port, url, field)
        connection = _Pinned(
            host, port, address, secure=place.scheme == "https", seconds=self._config.media_fetch_seconds
        )
        # headers that come a byte at a time would keep a timeout of the socket from ever being over
        watch = Timer(self._config.media_fetch_seconds, connection.cut)
        watch.start()
        try:
            target = f"{place.path or '/'}{'?' + place.query if place.query else ''}"
            connection.request("GET", target, headers={"Accept-Encoding": "identity", "User-Agent": "quire"})
            return self._body(connection.getresponse(), url, field)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, InvalidRequest):
                raise
            raise _refused(field, url, f"it cannot be fetched ({type(error).__name__})") from None
        finally:
            watch.cancel()
            connection.close()

    def _host(self, place: SplitResult, url: str, field: str) -> tuple[str, int]:
        try:
            host, port = (place.hostname or "").rstrip("."), place.port
        except ValueError:
            raise _refused(field, url, "its port is no number") from None
        if place.username is not None or place.password is not None:
            raise _refused(field, url, "it has a user name in it")
        usual = _PORTS[place.scheme]
        named = host if port in (None, usual) else f"{host}:{port}"
        if not host or not any(fnmatchcase(named, pattern) for pattern in self._config.domains):
            raise _refused(
                field, url, f"its host is not among --allowed-media-domains ({', '.join(self._config.domains)})"
            )
        return host, port or usual

    def _body(self, response: http.client.HTTPResponse, url: str, field: str) -> bytes:
        if response.status != _OK:
            moved = ", and redirects are not followed" if 300 <= response.status < 400 else ""
            raise _refused(field, url, f"its host answers with status {response.status}{moved}")
        length = response.getheader("Content-Length", "")
        if length.isdecimal() and int(length) > self._most:
            raise self._too_large(field)
        found = bytearray()
        while piece := response.read(_PIECE):
            found += piece
            if len(found) > self._most:
                raise self._too_large(field)
        if length.isdecimal() and len(found) != int(length):
            raise _refused(field, url, "it did not come whole in time")
        return bytes(found)

    def _bounded(self, data: bytes, field: str) -> bytes:
        if len(data) > self._most:
            raise self._too_large(field)
        return data

    def _too_large(self, field: str) -> InvalidRequest:
        return InvalidRequest(f"{field} has more than {self._most:,} bytes, the most (--media-max-mb)", field=field)


class _Pinned(http.client.HTTPConnection):
    """To an address that was checked, under the name that it was asked for by."""

    def __init__(self, host: str, port: int, address: str, *, secure: bool, seconds: float) -> None:
        super().__init__(host, port, timeout=seconds)
        self._address = address
        self._secure = secure

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._secure:
            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)

    def cut(self) -> None:
        """From another thread: whoever waits for it goes on."""
        sock: socket.socket | None = self.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _public_address(host: str, port: int, url: str, field: str) -> str:
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        raise _refused(field, url, "its host has no address") from None
    if not all(is_public(ipaddress.ip_address(address.partition("%")[0])) for address in found):
        raise _refused(field, url, "its host has an address that is not public")
    return sorted(found)[0]


def is_public(address: IPAddress) -> bool:
    """Whether an address is of the open internet, however it is wrapped."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None:
            return False
    return address.is_global and not address.is_multicast


def _refused(field: str, url: str, why: str) -> InvalidRequest:
    shown = url if len(url) <= _SHOWN else url[:_SHOWN] + "..."
    return InvalidRequest(f"{field} is {shown!r}; {why}", field=field)
