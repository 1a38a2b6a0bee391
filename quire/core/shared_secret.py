"""How two processes prove to each other that they know a secret, without telling it: HMAC over fresh numbers of both.

That keeps strangers out; over networks where others can listen or interfere, TLS is needed as well.
"""

import hmac
import secrets

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
