"""Thinking that a client keeps for the server: sealed, so that it comes back as it was given or is refused.

Nothing of it is stored: a client that asks for it often says `store: false`. Python's standard library has no
authenticated cipher, so this is the textbook composition of two primitives that it has (Bellare and Namprempre,
encrypt-then-MAC): SHAKE-256 over a secret key and a random nonce gives the key stream, which is never used twice, and
HMAC-SHA-256 under another key covers tenant, nonce and ciphertext and is checked before anything is deciphered.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from functools import partial

from quire.core.errors import InvalidRequest
from quire.protocol.ignored import Ignored
from quire.protocol.responses.items import Item

_VERSION = "q1."
_NONCE = 24
"""Random bytes: no two are equal within any number of messages that a server could seal."""
_TAG = 32


class ThinkingSeal:
    """Seals and opens the thinking of one tenant; what belongs to another does not open."""

    def __init__(self, secret: bytes, tenant: str) -> None:
        self._cipher_key = _derived(secret, b"quire thinking: cipher")
        self._tag_key = _derived(secret, b"quire thinking: tag")
        self._tenant = hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).digest()

    def sealed(self, text: str) -> str:
        nonce = secrets.token_bytes(_NONCE)
        hidden = self._masked(text.encode("utf-8", "surrogatepass"), nonce)
        return _VERSION + base64.urlsafe_b64encode(nonce + self._tag(nonce, hidden) + hidden).decode()

    def opened(self, items: Iterable[Item], ignored: Ignored, field: str = "input") -> list[Item]:
        """The items of a body's `field`; thinking that is sealed becomes text.

        What another maker sealed nobody here can read: such thinking goes on without it, and is noted. Raises an
        InvalidRequest for what this server's kind of seal does not open.
        """
        found = []
        for item in items:
            if "encrypted_content" not in item:
                found.append(item)
                continue
            rest = {name: value for name, value in item.items() if name != "encrypted_content"}
            if not item["encrypted_content"].startswith(_VERSION):
                ignored.note(f"{field}[].encrypted_content", partial(_unreadable, field))
                if item["content"] or item["summary"]:
                    found.append(rest)
                continue
            text = self._text(item["encrypted_content"])
            if text is None:
                raise _unreadable(field)
            found.append({**rest, "content": item["content"] or [{"type": "reasoning_text", "text": text}]})
        return found

    def _text(self, sealed: str) -> str | None:
        try:
            raw = base64.b64decode(sealed.removeprefix(_VERSION), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        nonce, tag, hidden = raw[:_NONCE], raw[_NONCE : _NONCE + _TAG], raw[_NONCE + _TAG :]
        if not hmac.compare_digest(tag, self._tag(nonce, hidden)):
            return None
        return self._masked(hidden, nonce).decode("utf-8", "surrogatepass")

    def _tag(self, nonce: bytes, hidden: bytes) -> bytes:
        # parts of fixed length come first, so no two messages read alike
        return hmac.digest(self._tag_key, self._tenant + nonce + hidden, "sha256")

    def _masked(self, data: bytes, nonce: bytes) -> bytes:
        stream = hashlib.shake_256(self._cipher_key + nonce).digest(len(data))
        return (int.from_bytes(data) ^ int.from_bytes(stream)).to_bytes(len(data))


def _unreadable(field: str) -> InvalidRequest:
    return InvalidRequest(
        "the encrypted_content of a reasoning item was not sealed by this server for this key, or was changed; "
        "send it as it came, or leave the item out",
        field=field,
    )


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, purpose, "sha256")
