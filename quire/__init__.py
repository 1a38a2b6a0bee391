"""quire: an LLM inference and serving engine built around a paged KV cache."""

from typing import TYPE_CHECKING, Any

from quire.core.version import QUIRE_VERSION

if TYPE_CHECKING:
    from quire.config.engine import EngineConfig
    from quire.core.adapter import LoRARequest
    from quire.core.errors import CheckpointError, ConfigError, InvalidRequest, QuireError, RequestTooLarge
    from quire.core.outputs import CompletionOutput, RequestOutput
    from quire.core.reasoning import ReasoningPart
    from quire.core.sampling_params import SamplingParams
    from quire.core.structured import StructuredOutput
    from quire.engine.beam_search import BeamSearchParams
    from quire.engine.llm import LLM
    from quire.serving.async_llm import AsyncLLM


__version__ = QUIRE_VERSION

__all__ = [
    "LLM",
    "AsyncLLM",
    "BeamSearchParams",
    "CheckpointError",
    "CompletionOutput",
    "ConfigError",
    "EngineConfig",
    "InvalidRequest",
    "LoRARequest",
    "QuireError",
    "ReasoningPart",
    "RequestOutput",
    "RequestTooLarge",
    "SamplingParams",
    "StructuredOutput",
    "__version__",
]

_HOMES = {
    "quire.config.engine": ("EngineConfig",),
    "quire.core.adapter": ("LoRARequest",),
    "quire.core.errors": ("CheckpointError", "ConfigError", "InvalidRequest", "QuireError", "RequestTooLarge"),
    "quire.core.outputs": ("CompletionOutput", "RequestOutput"),
    "quire.core.reasoning": ("ReasoningPart",),
    "quire.core.sampling_params": ("SamplingParams",),
    "quire.core.structured": ("StructuredOutput",),
    "quire.engine.beam_search": ("BeamSearchParams",),
    "quire.serving.async_llm": ("AsyncLLM",),
    "quire.engine.llm": ("LLM",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import quire` and `quire --help` load no torch."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'quire' has no attribute {name!r}")
