"""Which parsers a model needs: by name, or by what its chat template shows."""

from quire.protocol.parsers.call_format import CallFormat
from quire.protocol.parsers.deepseek import DeepSeek
from quire.protocol.parsers.granite import Granite
from quire.protocol.parsers.harmony import THINKING, Harmony
from quire.protocol.parsers.hermes import Hermes
from quire.protocol.parsers.llama3 import Llama3
from quire.protocol.parsers.mistral import Mistral
from quire.protocol.parsers.pythonic import Pythonic
from quire.protocol.parsers.qwen3_coder import Qwen3Coder
from quire.protocol.parsers.thinking import Thinking

CALL_FORMATS: dict[str, CallFormat] = {
    "harmony": Harmony(),
    "deepseek": DeepSeek(),
    "mistral": Mistral(),
    "qwen3-coder": Qwen3Coder(),
    "hermes": Hermes(),
    "granite": Granite(),
    "pythonic": Pythonic(),
    "llama3": Llama3(),
}
"""In the order in which templates are tried: those whose markers are their own come first."""
THINKINGS: dict[str, Thinking] = {
    "harmony": Thinking(*THINKING, in_sections=True),
    "deepseek-r1": Thinking(assumed=True),
    "mistral": Thinking("[THINK]", "[/THINK]"),
    "qwen3": Thinking(),
}


def choose_calls(name: str, template: str) -> CallFormat | None:
    """The format called `name`; auto: the one that the template shows."""
    if name != "auto":
        found = CALL_FORMATS.get(name)
    else:
        found = next((form for form in CALL_FORMATS.values() if form.recognizes(template)), None)
    return None if found is None else found.tuned(template)


def choose_thinking(name: str, template: str) -> Thinking | None:
    """The way of thinking called `name`; auto: the one that the template shows."""
    if name != "auto":
        return THINKINGS.get(name)
    if CALL_FORMATS["harmony"].recognizes(template):
        return THINKINGS["harmony"]
    # whether an answer begins within its thinking, the end of its prompt shows
    return next((way for way in (THINKINGS["qwen3"], THINKINGS["mistral"]) if way.recognizes(template)), None)
