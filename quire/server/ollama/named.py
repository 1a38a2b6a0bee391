"""The model under the name that an Ollama client has for it."""

from typing import TYPE_CHECKING

from quire.protocol.ollama.body import untagged
from quire.server.caller import Caller

if TYPE_CHECKING:
    from quire.server.serving import Serving


def checked_name(given: str | None, serving: "Serving", caller: Caller) -> str:
    """What answers call the model: as the client does. Raises UnknownModel unless it may use a model by that name."""
    known = given is None or given in serving.names
    serving.check_model(given if given is None or known else untagged(given), caller)
    return serving.names[0] if given is None else given
