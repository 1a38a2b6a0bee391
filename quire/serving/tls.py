"""TLS for whatever listens: HTTP servers and engines that fronts of other hosts reach."""

import ssl

from quire.config.listening import ListenConfig
from quire.core.errors import ConfigError


def tls_context(config: ListenConfig) -> ssl.SSLContext | None:
    """What encrypts the connections that a server accepts; None where it has no certificate."""
    if config.ssl_certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # The password is refused rather than asked for: a server has nobody to ask.
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password=_no_password)
    except (OSError, ssl.SSLError) as error:
        named = " and ".join(filter(None, (config.ssl_certfile, config.ssl_keyfile)))
        raise ConfigError(
            f"cannot use {named} for TLS: {error.strerror or error}; --ssl-certfile and --ssl-keyfile are PEM files "
            "that belong together, without a password."
        ) from None
    return context


def _no_password() -> str:
    raise ssl.SSLError(0, "the private key has a password")
