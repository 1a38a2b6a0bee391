"""Several values after one option, as users of vLLM write them, become the one value that quire's options take."""

from collections.abc import Callable, Sequence

from quire.config.vllm_flags import COMMANDS

_LORA_MODULES = "--lora-modules"
_NAMES = "--served-model-name"
_MODEL = "--model"


def joined_values(tokens: Sequence[str]) -> list[str]:
    """`--lora-modules a=x b=y` and, once the model is named, `--served-model-name a b`."""
    joined = _joined(tokens, _LORA_MODULES, " ", lambda token: "=" in token)
    return _joined(joined, _NAMES, ",", lambda _: True) if _names_a_model(tokens) else joined


def _names_a_model(tokens: Sequence[str]) -> bool:
    """Whether what follows a name can only be another name: without a model before it, it would be the model."""
    if not tokens or tokens[0] not in COMMANDS:
        return False
    is_first = len(tokens) > 1 and not tokens[1].startswith("-")
    return is_first or any(token == _MODEL or token.startswith(f"{_MODEL}=") for token in tokens)


def _joined(tokens: Sequence[str], option: str, separator: str, belongs: Callable[[str], bool]) -> list[str]:
    joined: list[str] = []
    is_open = False
    for token in tokens:
        if is_open and not token.startswith("-") and belongs(token):
            if joined[-1] == option:
                joined.append(token)
            else:
                joined[-1] += f"{separator}{token}"
            continue
        is_open = token == option
        joined.append(token)
    return joined
