"""Whose web pages may make the server work: its own, and those of the origins that were allowed.

A browser lets any page send requests and open sockets to an address on its user's machine and only keeps the page from
reading answers. What has effects is therefore judged by where it comes from. Programs send no Origin and are not asked.
"""

from collections.abc import Sequence

from quire.server.errors import Forbidden
from quire.server.gate.credentials import Headers


def check_origin(headers: Headers, allowed: Sequence[str]) -> None:
    """Raise Forbidden for a request made by a page from elsewhere."""
    # The browser writes these three itself; a page cannot.
    said = {name: value for name, value in headers if name in (b"origin", b"host", b"sec-fetch-site")}
    origin = said.get(b"origin")
    if origin is None or "*" in allowed or said.get(b"sec-fetch-site") in (b"same-origin", b"none"):
        return
    text = origin.decode("latin-1")
    own = said.get(b"host", b"").decode("latin-1")
    if text in allowed or (own and text in (f"http://{own}", f"https://{own}")):
        return
    raise Forbidden(f"pages of {text[:200]!r} may not use this server; --allowed-origins names those that may.")
