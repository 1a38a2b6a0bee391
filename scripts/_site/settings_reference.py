"""The reference of settings, from the fields of the config sections: the text that `quire serve --help-all` shows."""

import inspect
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from scripts._site.source import read_class
from scripts._site.tables import cell, code, table


def settings_reference() -> str:
    """A table for every group of settings that `quire serve` has, and one for those of `quire route`."""
    from quire.cli.options import RouterOptions
    from quire.cli.serve import serve

    hints = get_type_hints(serve, include_extras=True)
    sections = [hint for hint in hints.values() if get_origin(hint) is Annotated and hasattr(hint, "__metadata__")]
    of_serve = [hint for hint in sections if hasattr(get_args(hint)[0], "__dataclass_fields__")]
    in_order = sorted(of_serve, key=lambda hint: _group(hint).sort_key)
    parts = [_section(_group(hint).name, get_args(hint)[0]) for hint in in_order]
    return "\n\n".join([*parts, _section("Router (`quire route` only)", get_args(RouterOptions)[0])])


def _group(hint: Any) -> Any:
    return get_args(hint)[1].group[0]


def _section(title: str, section: type) -> str:
    from quire.config.bounds import flag
    from quire.config.fields import describe

    texts: dict[str, str] = {}
    for part in reversed(section.__mro__[:-1]):  # settings that several sections share stand in a base of theirs
        texts |= {each.name: each.text for each in read_class(Path(inspect.getfile(part)), part.__name__).fields}
    hints = get_type_hints(section)
    rows = []
    for field in fields(section):
        option = flag(field.name)
        anchor = f'<a id="{option.removeprefix("--")}"></a>`{option}`'
        rows.append([anchor, cell(describe(hints[field.name])), _default(field), cell(texts[field.name])])
    return f"## {title}\n\n" + table(["option", "value", "default", "meaning"], rows)


def _default(field: Field[Any]) -> str:
    value = field.default
    if field.default_factory is not MISSING:
        value = field.default_factory()
    if value is None or value in ("", ()):
        return ""
    return code(str(value).lower() if isinstance(value, bool) else str(value))
