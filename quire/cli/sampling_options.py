"""How tokens are chosen, as command-line options; what they may be is `SamplingParams`' business."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, get_type_hints

from cyclopts import Group, Parameter

from quire.config.fields import describe
from quire.core.errors import InvalidRequest
from quire.core.nearest import did_you_mean
from quire.core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """How tokens are chosen and when they end."""

    max_tokens: int | None = 512
    """Tokens of an answer at most. none: as many as the context holds."""
    temperature: float = 0.0
    """0 takes the most likely token every time; higher values are more varied."""
    top_p: float = 1.0
    """Choose among the most likely tokens that together reach this probability."""
    top_k: int = 0
    """Choose among this many of the most likely tokens. 0: all."""
    min_p: float = 0.0
    """Leave out tokens less likely than this share of the most likely one."""
    seed: int | None = None
    """The same seed gives the same answer. Unset: another one each time."""
    presence_penalty: float = 0.0
    """Lower the scores of tokens that have occurred, from -2 to 2."""
    frequency_penalty: float = 0.0
    """Lower the scores of tokens for each time they have occurred, from -2 to 2."""
    repetition_penalty: float = 1.0
    """Divide the scores of tokens that have occurred, prompt included. 1: no change."""
    stop: tuple[str, ...] = ()
    """Text that ends the answer; may be given several times."""

    def params(self, **more: Any) -> SamplingParams:
        """Checked, and as the engine takes them."""
        return SamplingParams(**asdict(self), **more)


@dataclass(frozen=True, slots=True)
class ChatSampling(SamplingSettings):
    """The same, for answers that people read: small models repeat themselves without a penalty."""

    repetition_penalty: float = 1.1
    """Divide the scores of tokens that have occurred, prompt included. 1: no change."""


_PANEL = Parameter(name="*", group=Group("Sampling", sort_key=0.5), negative="")
SAMPLING, CHAT_SAMPLING = SamplingSettings(), ChatSampling()
SamplingOptions = Annotated[SamplingSettings, _PANEL]
ChatSamplingOptions = Annotated[ChatSampling, _PANEL]


def changed(settings: SamplingSettings, name: str, text: str) -> SamplingSettings:
    """The settings with one of them as a person typed it."""
    known = [field.name for field in fields(settings)]
    name = name.replace("-", "_")
    if name not in known:
        raise InvalidRequest(f"there is no setting {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}")
    value: Any = (text,) if name == "stop" and text.lower() != "none" else _read(name, text)
    asked = replace(settings, **{name: value})
    asked.params()
    return asked


def _read(name: str, text: str) -> Any:
    hint = get_type_hints(SamplingSettings)[name]
    if text.lower() == "none":
        if name == "stop":
            return ()
        if type(None) in getattr(hint, "__args__", ()):
            return None
    try:
        return float(text) if hint is float else int(text)
    except ValueError:
        raise InvalidRequest(f"{name} is {text!r}, but it must be {describe(hint)}") from None
