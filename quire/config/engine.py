"""Everything a user can ask for, as one frozen object of sections."""

from dataclasses import dataclass, field, replace
from typing import Self

from quire.config.cache import CacheConfig
from quire.config.fields import as_text, check_value, field_sections, section_types
from quire.config.lora import LoraConfig
from quire.config.model import ModelConfig
from quire.config.multimodal import MultimodalConfig
from quire.config.observe import ObserveConfig
from quire.config.parallel import ParallelConfig
from quire.config.parsers import ParserConfig
from quire.config.scheduler import SchedulerConfig
from quire.config.server import ANY_NAME, ServerConfig
from quire.config.vllm_flags import answer_of
from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean
from quire.core.plugins import permit


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What was asked for; `resolve` turns it into concrete values."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """Which checkpoint, and how it is held and computed."""
    cache: CacheConfig = field(default_factory=CacheConfig)
    """The KV cache and its tiers."""
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    """Who gets how many tokens of a step."""
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    """Over how many devices and hosts the model is spread."""
    server: ServerConfig = field(default_factory=ServerConfig)
    """Where the HTTP server listens, who may use it, and its limits."""
    observe: ObserveConfig = field(default_factory=ObserveConfig)
    """Logs and traces."""
    parsers: ParserConfig = field(default_factory=ParserConfig)
    """How tool calls and thinking are read."""
    lora: LoraConfig = field(default_factory=LoraConfig)
    """LoRA adapters and the room for them."""
    multimodal: MultimodalConfig = field(default_factory=MultimodalConfig)
    """Images, video and sound."""

    def __post_init__(self) -> None:
        # The one effect that settings have by being there. A process goes by them in many places, and one that forgot
        # the operator's word would run code that is to stay out; no process can forget to build what it goes by.
        permit(self.model.plugins)
        self._take_copies()
        self._check_base_models()

    def _take_copies(self) -> None:
        """One number under two names: --data-parallel-size and --replicas; unless the former spreads one copy."""
        copies, replicas = self.parallel.data_parallel_size, self.server.replicas
        if copies in {1, replicas} or self.parallel.attention_ranks > 1:
            return
        if replicas != 1:
            raise ConfigError(
                f"--data-parallel-size is {copies} and --replicas {replicas}, which are names of one number; leave one "
                "out."
            )
        object.__setattr__(self, "server", replace(self.server, replicas=copies))

    def _check_base_models(self) -> None:
        """Adapters may name the model that they are for, by any name that clients have for it."""
        names = self.server.names() or (self.model.model, self.model.model.rstrip("/").rpartition("/")[2])
        for base in self.lora.base_models:
            if base not in names and ANY_NAME not in names:
                raise ConfigError(
                    f"--lora-modules has an adapter for {base!r}, but the model is {names[0]!r}; "
                    "leave base_model_name out, or serve that model."
                )

    def names(self) -> tuple[str, ...]:
        """What clients may call the model: what was said, or what it was started by."""
        given = self.server.names()
        own = () if any(name != ANY_NAME for name in given) else (self.model.model,)
        return (*own, *given)

    def name(self) -> str:
        """What metrics call the model: as vLLM's do, by the first of its names, which is no path of this machine where
        another was given."""
        return next(name for name in self.names() if name != ANY_NAME)

    @classmethod
    def from_flat(cls, **settings: object) -> Self:
        """Build it from plain names, as in `from_flat(model="gpt2", max_num_seqs=8)`."""
        known = field_sections(cls)
        sections = section_types(cls)
        chosen: dict[str, dict[str, object]] = {name: {} for name in sections}
        for name, value in settings.items():
            if name not in known:
                raise ConfigError(f"unknown setting {name!r}.{answer_of(name) or did_you_mean(name, known)}")
            section = sections[known[name]]
            chosen[known[name]][name] = given = as_text(section, name, value)
            check_value(section, name, given)
        return cls(**{name: section(**chosen[name]) for name, section in sections.items()})
