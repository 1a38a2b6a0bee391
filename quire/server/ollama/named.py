"""The model under the name that an Ollama client has for it."""

from typing import TYPE_CHECKING

from quire.protocol.ollama.body import untagged
from quire.server.caller import Caller

if TYPE_CHECKING:
    from quire.server.serving import Serving


def checked_name(given: str | None, serving: "Serving", caller: Caller) -> str:
    """What answers call the model: as the client does. Raises UnknownModel unless it may use a model by that name."""
    serving.check_model(None if given is None else own_name(given, serving), caller)
    return serving.names[0] if given is None else given


def own_name(given: str, serving: "Serving") -> str:
    """What the server calls it: clients add tags to names that have none."""
    return given if given in serving.names else untagged(given)
