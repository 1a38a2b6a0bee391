"""The socket the server listens on, taken before anything slow happens, so that a taken port is known at once."""

import errno
import os
import resource
import socket
import stat
from pathlib import Path

from quire.config.listening import ListenConfig
from quire.core.errors import ConfigError

_BACKLOG = 2048
_OWNER_ONLY = 0o177
_SEND_BUFFER = 128 * 1024
_KEPT_BACK = 256
"""Open files that are no connections: weights, logs, sockets to engines."""


def bind(config: ListenConfig, *, shares_port: bool = False) -> socket.socket:
    """A listening socket, or a ConfigError that says why there is none.

    Sockets that share their port get connections in turns from the kernel; look first whether the port is free, as it
    may be shared with another server of this user too.
    """
    if config.uds is not None:
        return _bind_path(Path(config.uds).expanduser())
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(
            f"--host is {config.host!r}, which is no address here: {error}; 127.0.0.1 always is."
        ) from None
    taken = socket.socket(family, kind, protocol)
    try:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares_port:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # accepted connections inherit it: what a slow reader leaves in the kernel is bounded too
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        taken.bind(place)
        taken.listen(_BACKLOG)
    except OSError as error:
        taken.close()
        raise ConfigError(_why_not(config, error)) from None
    taken.setblocking(False)
    return taken


def url_of(listening: socket.socket, config: ListenConfig) -> str:
    """Where clients find the server, with the port it really has."""
    if listening.family == socket.AF_UNIX:
        return f"unix:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    scheme = "https" if config.ssl_certfile else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def allow_open_files(connections: int) -> int:
    """Raise the limit on open files to what the system grants; returns the connections that it leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):  # some systems name a hard limit that they do not grant
            pass
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft - _KEPT_BACK))


def _why_not(config: ListenConfig, error: OSError) -> str:
    place = f"{config.host} port {config.port}"
    if error.errno == errno.EADDRINUSE:
        shows = f"`ss -ltnp 'sport = :{config.port}'` shows which"
        return (
            f"cannot listen on {place}: another program does, perhaps another quire; {shows}. Stop it, give another "
            "--port, or --port 0 for any free one."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"cannot listen on {place}: the system does not allow it; ports below 1024 are root's, try --port 8000."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"cannot listen on {place}: this machine has no such address; --host 0.0.0.0 takes every one it has."
    return f"cannot listen on {place}: {error.strerror or error}."


def _bind_path(path: Path) -> socket.socket:
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode must be right from the first moment on; nothing else runs yet that the mask could hurt.
    mask = os.umask(_OWNER_ONLY)
    try:
        listening.bind(str(path))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise ConfigError(f"cannot listen on --uds {path}: {error.strerror or error}.") from None
    finally:
        os.umask(mask)
    listening.setblocking(False)
    return listening


def _remove_stale(path: Path) -> None:
    """A socket that nobody listens on is left over from a server that was killed."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except OSError:
        return
    if not is_socket:
        raise ConfigError(f"cannot listen on --uds {path}: there is a file of that name; give another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise ConfigError(f"cannot listen on --uds {path}: another program does; stop it, or give another path.")
