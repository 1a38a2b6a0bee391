"""LoRA adapters: whether there may be any, where they are, and how many at once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from quire.config.bounds import check
from quire.core.errors import ConfigError
from quire.spec.lora import LAYERS, TARGETS

MOST_ADAPTERS = 4096
MOST_RANK = 256
AUTO = "auto"
_IN_ONE_STEP = 8


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """LoRA adapters: whether there may be any, where they are, and how many at once."""

    enable_lora: bool = False
    """Keep room for LoRA adapters, which requests choose by the name they give as the model's. Off: nothing is
    different from a model without."""
    lora_modules: str | None = None
    """Adapters by name, as name=path separated by spaces or commas, or as JSON objects with name and path; a path is a
    folder in peft's format or a hub id."""
    lora_dir: str | None = None
    """A folder whose subfolders are adapters, each by its own name; one is looked for when it is first asked for."""
    max_loras: int | None = None
    """Adapters that may be used in one step. The device has room for so many of the largest rank, and for more of
    smaller ones. Unset: 8, or max_cpu_loras where that is less."""
    max_cpu_loras: int | None = None
    """Adapters kept in host memory; others are read from disk again. Unset: eight times max_loras."""
    max_lora_rank: int = 16
    """The largest rank of an adapter, up to 256. Adapters of all smaller ranks run in the same steps."""
    lora_targets: str = AUTO
    """Kinds of matrices that room is kept for: layers (attention and MLPs), experts, embedding, head, separated by
    commas. auto: layers, and what the adapters of lora_modules have."""

    def __post_init__(self) -> None:
        fix = "each is a part of the device's memory"
        check(1 <= self.in_one_step <= MOST_ADAPTERS, "max_loras", self.max_loras, f"1 to {MOST_ADAPTERS}", fix)
        check(
            1 <= self.max_lora_rank <= MOST_RANK,
            "max_lora_rank",
            self.max_lora_rank,
            f"1 to {MOST_RANK}",
            "use 16 to 64",
        )
        if self.max_cpu_loras is not None:
            least = 1 if self.max_loras is None else self.max_loras
            allowed = "1 or more" if self.max_loras is None else f"{self.max_loras} (max_loras) or more"
            check(self.max_cpu_loras >= least, "max_cpu_loras", self.max_cpu_loras, allowed, "or leave it out")
        given = set(self.targets or ())
        known = ", ".join(TARGETS)
        check(
            given <= set(TARGETS), "lora_targets", self.lora_targets, f"auto, or some of {known}", "separate by commas"
        )
        if not self.enable_lora:
            for name in ("lora_modules", "lora_dir"):
                if getattr(self, name) is not None:
                    raise ConfigError(
                        f"--{name.replace('_', '-')} is given without --enable-lora; add that, or leave it out."
                    )
        _ = self.modules

    @property
    def modules(self) -> dict[str, str]:
        """Paths by name."""
        found: dict[str, str] = {}
        for name, path, _ in self._entries():
            if name in found:
                raise ConfigError(f"--lora-modules names {name!r} twice; adapters are told apart by their names.")
            found[name] = path
        return found

    @property
    def base_models(self) -> tuple[str, ...]:
        """Names of models that adapters say they are for; those that say nothing are for any."""
        return tuple(base for _, _, base in self._entries() if base is not None)

    def _entries(self) -> Iterator[tuple[str, str, str | None]]:
        given = (self.lora_modules or "").strip()
        if given.startswith("{"):
            yield from _objects(given)
            return
        for entry in given.replace(",", " ").split():
            name, equals, path = entry.partition("=")
            if not name or not equals or not path:
                raise ConfigError(f"--lora-modules has {entry!r}, but each entry is name=path.")
            yield name, path, None

    @property
    def targets(self) -> tuple[str, ...] | None:
        """Kinds that were asked for, layers among them; None: to be decided."""
        if self.lora_targets == AUTO:
            return None
        given = [each.strip() for each in self.lora_targets.split(",") if each.strip()]
        return tuple(dict.fromkeys((LAYERS, *given)))

    @property
    def in_one_step(self) -> int:
        """Adapters that one step may use."""
        if self.max_loras is not None:
            return self.max_loras
        return _IN_ONE_STEP if self.max_cpu_loras is None else min(_IN_ONE_STEP, max(self.max_cpu_loras, 1))

    @property
    def on_host(self) -> int:
        return self.max_cpu_loras or 8 * self.in_one_step


def _objects(given: str) -> Iterator[tuple[str, str, str | None]]:
    """JSON objects one after another, with or without commas between them, as vLLM takes them."""
    decoder, rest = json.JSONDecoder(), given
    while rest:
        try:
            entry, end = decoder.raw_decode(rest)
        except ValueError:
            raise ConfigError(f"--lora-modules has {rest[:80]!r}, which is no JSON object.") from None
        rest = rest[end:].lstrip(" ,")
        fields = entry if isinstance(entry, dict) else {}
        known = {"name", "path"} <= set(fields) <= {"name", "path", "base_model_name"}
        if not known or not all(isinstance(value, str) and value for value in fields.values()):
            raise ConfigError(
                f"--lora-modules has {entry!r}, but an entry has a name and a path, may have a base_model_name, "
                "and all of them are texts."
            )
        yield fields["name"], fields["path"], fields.get("base_model_name")
