"""A model's tokenizer and chat template, from a checkpoint folder or a GGUF file."""

from pathlib import Path

from quire.core.errors import CheckpointError
from quire.models.loading.folder import find_model
from quire.models.loading.gguf_header import read_gguf_header
from quire.text.chat_template import DEFAULT, ChatTemplate
from quire.text.from_folder import tokenizer_from_folder
from quire.text.from_gguf import tokenizer_from_gguf
from quire.text.template_pool import TemplatePool
from quire.text.template_sources import template_in_file, templates_in_folder, templates_in_gguf
from quire.text.tokenizer import Tokenizer
from quire.text.tool_template import BUILT_IN, ToolTemplate


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer of the model at `path`: a folder, or a GGUF file (the first of several parts)."""
    gguf = _gguf_at(path)
    return tokenizer_from_folder(path) if gguf is None else tokenizer_from_gguf(read_gguf_header(gguf))


def has_tokenizer(path: Path) -> bool:
    """Whether the model at `path` has one; shapes for measurements have none."""
    return not path.is_dir() or _has_own(path) or any(path.glob("*.gguf"))


def load_chat_template(
    path: Path, tokenizer: Tokenizer, pool: TemplatePool, *, file: Path | None = None, tools: str = "auto"
) -> ChatTemplate:
    """The chat template of the model at `path`, or the one in `file` where the user gives it. `tools` is how it shows
    tools if it has no place for them: auto, none, or a file.
    """
    fallback = load_tool_template(tools, pool)
    if file is not None:
        templates = template_in_file(file)
        return ChatTemplate(templates, tokenizer.named_tokens(), pool, source=str(file), tool_template=fallback)
    gguf = _gguf_at(path)
    templates = templates_in_folder(path) if gguf is None else templates_in_gguf(read_gguf_header(gguf))
    return ChatTemplate(templates, tokenizer.named_tokens(), pool, source=str(path), tool_template=fallback)


def load_tool_template(given: str, pool: TemplatePool) -> ToolTemplate | None:
    """The built-in one for auto, None for none, else the one in that file."""
    if given == "none":
        return None
    text = BUILT_IN if given == "auto" else template_in_file(Path(given))[DEFAULT]
    return ToolTemplate(text, pool, source="quire" if given == "auto" else given)


def _gguf_at(path: Path) -> Path | None:
    """The GGUF file whose tokenizer is meant; None where it is a folder's own, which wins."""
    if path.is_dir() and (_has_own(path) or not any(path.glob("*.gguf"))):
        return None
    gguf = find_model(path).gguf
    if gguf is None:
        raise CheckpointError(f"{path} holds no tokenizer; give the folder it lies in, or a .gguf file.")
    return gguf


def _has_own(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model"))
