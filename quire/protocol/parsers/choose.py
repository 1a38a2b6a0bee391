"""Which parsers a model needs: by name, or by what its chat template shows.

Plugins add names by entry points of `quire.parsers`; a template, which is data, never chooses one of them.
"""

from typing import Any

from quire.core.errors import PluginError
from quire.core.plugins import load_plugin
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


_NONE = "none"


def choose_calls(name: str, template: str) -> CallFormat | None:
    """The format called `name`; auto: the one that the template shows."""
    if name != "auto":
        found = CALL_FORMATS.get(name) or _plugin(name, CallFormat, "--tool-parser")
    else:
        found = next((form for form in CALL_FORMATS.values() if form.recognizes(template)), None)
    return None if found is None else found.tuned(template)


def choose_thinking(name: str, template: str) -> Thinking | None:
    """The way of thinking called `name`; auto: the one that the template shows."""
    if name != "auto":
        return THINKINGS.get(name) or _plugin(name, Thinking, "--reasoning-parser")
    if CALL_FORMATS["harmony"].recognizes(template):
        return THINKINGS["harmony"]
    # whether an answer begins within its thinking, the end of its prompt shows
    return next((way for way in (THINKINGS["qwen3"], THINKINGS["mistral"]) if way.recognizes(template)), None)


def _plugin(name: str, kind: type, setting: str) -> Any:
    """The plugin called `name`, which its setting wants to be of this kind."""
    found = None if name == _NONE else load_plugin("quire.parsers", name)
    if found is not None and not isinstance(found, kind):
        raise PluginError(f"{setting} is {name!r}, whose plugin is no {kind.__name__} but {found!r}.")
    return found
