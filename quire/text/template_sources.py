"""Where chat templates are found: beside a tokenizer, in a GGUF file, or in a file of the user's."""

from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError, ConfigError
from quire.models.loading.gguf_header import GGUFArray, GGUFHeader
from quire.models.loading.json_object import read_json_object
from quire.text.chat_template import DEFAULT

_MOST_BYTES = 4_000_000


def templates_in_folder(folder: Path) -> dict[str, str]:
    """The templates of a checkpoint by name; none when it has none. Files of their own win over the tokenizer's."""
    files = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").is_file():
        files[DEFAULT] = folder / "chat_template.jinja"
    if files:
        return {name: _text(path) for name, path in files.items()}
    for name in ("tokenizer_config.json", "chat_template.json"):
        path = folder / name
        if path.is_file() and (given := read_json_object(path).get("chat_template")) is not None:
            return _named(given, path)
    return {}


def templates_in_gguf(header: GGUFHeader) -> dict[str, str]:
    """The templates that a GGUF file carries, by name."""
    key = "tokenizer.chat_template"
    templates = {DEFAULT: header.metadata[key]} if key in header.metadata else {}
    names = header.metadata.get(f"{key}s")
    for name in names.read() if isinstance(names, GGUFArray) else ():
        templates[str(name)] = header.metadata.get(f"{key}.{name}", "")
    if not all(isinstance(template, str) for template in templates.values()):
        raise CheckpointError(f"{header.path} gives a chat template that is no text; convert the model again.")
    return {name: str(template) for name, template in templates.items()}


def template_in_file(path: Path) -> dict[str, str]:
    """The one template of a user's file."""
    try:
        return {DEFAULT: _text(path)}
    except CheckpointError as error:
        raise ConfigError(f"the chat template given cannot be used: {error}") from None


def _named(given: Any, path: Path) -> dict[str, str]:
    """One template, or a list of them with names."""
    if isinstance(given, str):
        return {DEFAULT: given}
    named: dict[str, str] = {}
    for entry in given if isinstance(given, list) else [given]:
        match entry:
            case {"name": str(name), "template": str(template)}:
                named[name] = template
            case _:
                raise CheckpointError(f"{path} gives chat_template as neither a text nor a list of named templates.")
    return named


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise CheckpointError(f"{path} is larger than {_MOST_BYTES:,} bytes, which no chat template needs.")
        return data.decode()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise CheckpointError(f"{path} is not UTF-8 text.") from None
