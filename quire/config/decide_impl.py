"""The decision of `resolve` whose code a model is."""

from quire.config.engine import EngineConfig
from quire.config.resolved import Choice
from quire.core.errors import ConfigError


def decide_impl(asked: EngineConfig, choices: list[Choice]) -> bool:
    """Whether transformers' modules compute; which families quire has is known where `auto` is replaced."""
    settings = asked.model
    if settings.model_impl != "transformers":
        return False
    for given, flag in ((settings.compile, "--compile"), (settings.offload_gb, "--offload-gb")):
        if given:
            raise ConfigError(
                f"{flag} is for models that quire has code of its own for, and this one runs through transformers; "
                "leave it out."
            )
    choices.append(Choice("model_impl", "transformers", "its modules, with quire's cache, scheduler and sampling"))
    return True
