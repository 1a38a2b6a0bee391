"""The model or head that drafts for another: planned, and a smaller model's tokenizer compared with the large one's."""

from pathlib import Path

from quire.config.engine import EngineConfig
from quire.config.facts import DeviceFacts, HeadFacts, ModelFacts
from quire.config.resolved import DraftPlan
from quire.config.speculation import SETTING
from quire.core.errors import ConfigError
from quire.models.loading.drafter import plan_drafter
from quire.text.load import load_tokenizer

_SPELLINGS = 997
"""Token ids whose spellings are compared, spread over the vocabulary; the text below is compared as well."""
_TEXT = "def café(x):\n\treturn [x ** 2, 'naïve', 1234567, 0.5e-3]  # 漢字 🙂 <|im_end|>\r\n"


def plan_checked_drafter(
    asked: EngineConfig, path: Path, large: ModelFacts, device: DeviceFacts
) -> DraftPlan | HeadFacts | None:
    """Of the large model at `path`; None where neither a model nor a head drafts. Refuses a model that does not speak
    the tokens of the large one."""
    drafter = plan_drafter(asked, path, large, device)
    if isinstance(drafter, DraftPlan):
        _check_tokenizer(Path(drafter.path), large, path)
    return drafter


def _check_tokenizer(small_path: Path, large: ModelFacts, path: Path) -> None:
    told = f"{SETTING} has the model {small_path.name}"
    one, other = load_tokenizer(small_path), load_tokenizer(path)
    size = large.spec.vocab_size
    ids = range(0, size, max(1, size // _SPELLINGS))
    different = next((number for number in ids if one.id_to_token(number) != other.id_to_token(number)), None)
    if different is not None:
        raise ConfigError(
            f"{told}, whose token {different} is {one.id_to_token(different)!r}, and {large.name} has "
            f"{other.id_to_token(different)!r} there; a model that drafts must have the same tokenizer."
        )
    if one.encode(_TEXT) != other.encode(_TEXT):
        raise ConfigError(
            f"{told}, whose tokenizer cuts texts otherwise than that of {large.name}; a model that drafts must have "
            "the same."
        )
