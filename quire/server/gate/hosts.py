"""For which Host the server answers: its own names, and those that were allowed.

A page of evil.example can have its name point to 127.0.0.1 (DNS rebinding), and its browser then takes the server for
the page's own. The request still says evil.example as its Host. Addresses point nowhere else, so any of them is good.
"""

import socket
from collections.abc import Collection
from ipaddress import ip_address

from quire.config.listening import ListenConfig
from quire.server.errors import Misdirected
from quire.server.gate.credentials import Headers, only

_ALL = ("0.0.0.0", "::")  # nosec B104 # compared with, never bound
"""Addresses that stand for all of a machine's."""


def served_hosts(config: ListenConfig, *, has_keys: bool) -> frozenset[str] | None:
    """The names that the server answers for; None: any.

    With keys none need be named, since a page has no key; and no browser reaches a unix socket.
    """
    allowed = config.hosts()
    if "*" in allowed or config.uds is not None or (has_keys and not allowed):
        return None
    bound = socket.gethostname() if config.host in _ALL else config.host
    return frozenset(name.lower().rstrip(".") for name in ("localhost", bound, *allowed))


def check_host(headers: Headers, hosts: Collection[str] | None) -> None:
    """Raise Misdirected for a request to another name; browsers always send one."""
    given = None if hosts is None else only(headers, b"host")
    if hosts is None or given is None:
        return
    text = given.decode("latin-1")
    name = _without_port(text.strip().lower()).rstrip(".")
    if name not in hosts and not _is_address(name):
        raise Misdirected(
            f"the request is for the host {text[:200]!r}, and this server answers for {', '.join(sorted(hosts))} and "
            "IP addresses; start it with --allowed-hosts NAME to have it answer for that name too, or with keys."
        )


def _without_port(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
