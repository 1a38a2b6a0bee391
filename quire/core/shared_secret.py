"""How two processes prove to each other that they know a secret, without telling it: HMAC over fresh numbers of both.

That keeps strangers out; over networks where others can listen or interfere, TLS is needed as well.
"""

import hmac
import secrets
import socket
from pathlib import Path

from quire.core.errors import ConfigError, QuireError

LEAST_SECRET = 16
"""Characters a secret must have: it is all that keeps strangers out."""
NUMBER_BYTES = 32
PROOF_BYTES = 32


def fresh_number() -> bytes:
    """One that nobody can foresee."""
    return secrets.token_bytes(NUMBER_BYTES)


def proof(secret: bytes, who: bytes, verifier: bytes, prover: bytes) -> bytes:
    """That whoever sends it, in the role of `who`, knows the secret; the fresh numbers of both sides go into it."""
    return hmac.digest(secret, who + verifier + prover, "sha256")


def proves(given: bytes, secret: bytes, who: bytes, verifier: bytes, prover: bytes) -> bool:
    """Whether what was given is that proof; takes as long whatever was given."""
    return hmac.compare_digest(given, proof(secret, who, verifier, prover))


class SecretRefused(QuireError):
    """The other side is not who it should be."""


def read_secret(file: str | None) -> bytes:
    """The shared secret of a file."""
    if file is None:
        raise ConfigError("engines on other hosts need a shared secret; give its file as --engine-secret-file")
    try:
        secret = Path(file).expanduser().read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"the file of the engines' secret cannot be read: {error}") from None
    if len(secret) < LEAST_SECRET:
        raise ConfigError(
            f"the engines' secret in {file} has {len(secret)} characters, and needs {LEAST_SECRET} or more; "
            "`openssl rand -hex 32` makes a good one"
        )
    return secret


def prove_to_caller(connection: socket.socket, greeting: bytes, secret: bytes, caller: bytes, called: bytes) -> None:
    """The side that was called: have the caller prove itself in its role, then prove one's own.

    Raises SecretRefused, EOFError or OSError.
    """
    ours = fresh_number()
    connection.sendall(greeting + ours)
    answer = receive_exactly(connection, NUMBER_BYTES + PROOF_BYTES)
    theirs, given = answer[:NUMBER_BYTES], answer[NUMBER_BYTES:]
    if not proves(given, secret, caller, ours, theirs):
        raise SecretRefused("who called does not know the secret")
    connection.sendall(proof(secret, called, theirs, ours))


def prove_to_called(connection: socket.socket, greeting: bytes, secret: bytes, caller: bytes, called: bytes) -> None:
    """The side that called: the counterpart; raises SecretRefused, EOFError or OSError."""
    heard = receive_exactly(connection, len(greeting) + NUMBER_BYTES)
    if not heard.startswith(greeting):
        raise SecretRefused("it is no such part of quire, or of another version")
    theirs, ours = heard[len(greeting) :], fresh_number()
    connection.sendall(ours + proof(secret, caller, theirs, ours))
    if not proves(receive_exactly(connection, PROOF_BYTES), secret, called, ours, theirs):
        raise SecretRefused("it does not know the secret")


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    """Raises EOFError where the other side closes before."""
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        count = connection.recv_into(view[filled:])
        if count == 0:
            raise EOFError
        filled += count
    return bytes(data)
