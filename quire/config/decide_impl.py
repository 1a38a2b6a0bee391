"""The decision of `resolve` whose code a model is."""

from quire.config.decide_compute import spread_by
from quire.config.engine import EngineConfig
from quire.config.facts import ModelFacts
from quire.config.resolved import Choice
from quire.core.errors import ConfigError


def decide_impl(asked: EngineConfig, model: ModelFacts, choices: list[Choice]) -> bool:
    """Whether transformers' modules compute: where a model's spec is a mere outline."""
    settings = asked.model
    if model.spec.is_described:
        return False
    for given, flag in ((settings.compile, "--compile"), (settings.offload_gb, "--offload-gb")):
        if given:
            raise ConfigError(
                f"{flag} is for models that quire has code of its own for, and this one runs through transformers; "
                "leave it out."
            )
    spread = spread_by(asked)
    if spread is not None:
        raise ConfigError(
            f"{spread}, but quire cuts models that it has code "
            "of its own for, and this one runs through transformers; leave it at 1."
        )
    choices.append(Choice("model_impl", "transformers", "its modules, with quire's cache, scheduler and sampling"))
    return True
