"""The reference of the Python API, from the signatures and docstrings of the public classes."""

import ast
from pathlib import Path

from scripts._site.source import ClassSource, Field, Method, read_class
from scripts._site.tables import cell, code, table

ROOT = Path(__file__).resolve().parents[2]
FIRST = ("LLM", "AsyncLLM", "SamplingParams", "LoRARequest", "RequestOutput", "CompletionOutput", "StructuredOutput")
"""What readers look for first; the others follow by name."""


def api_reference() -> str:
    """A section for every public class, and a table of the errors."""
    homes = public_homes()
    errors = [name for name, home in homes.items() if home.endswith("errors.py")]
    others = sorted(set(homes) - set(errors) - set(FIRST))
    sections = [_section(read_class(ROOT / homes[name], name)) for name in (*FIRST, *others)]
    rows = [[f"`{name}`", cell(read_class(ROOT / homes[name], name).text)] for name in sorted(errors)]
    return "\n\n".join([*sections, "## Errors", "Import them from `quire`.", table(["error", "when"], rows)])


def public_homes() -> dict[str, str]:
    """Public name → path of the file that defines it, as `quire/__init__.py` imports them for type checkers."""
    tree = ast.parse((ROOT / "quire" / "__init__.py").read_text(encoding="utf-8"))
    [for_checkers] = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in for_checkers.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module or "" for node in imports for alias in node.names}
    return {name: f"{home.replace('.', '/')}.py" for name, home in modules.items() if home.startswith("quire.")}


def _section(found: ClassSource) -> str:
    parts = [f"## {found.name}", f"`from quire import {found.name}`", found.text]
    if found.constructor:
        parts.append(_code(found.constructor))
    if found.fields:
        parts.append(table(["field", "type", "default", "meaning"], [_row(each) for each in found.fields]))
    parts += [_method(found.name, each) for each in found.methods]
    return "\n\n".join(parts)


def _row(field: Field) -> list[str]:
    default = code(field.default) if field.default and "field(" not in field.default else ""
    return [code(field.name), code(field.type), default, cell(field.text)]


def _method(owner: str, method: Method) -> str:
    shown = method.signature.replace("() ->", ":").replace(" :", ":") if method.is_property else method.signature
    return "\n\n".join([f"### {owner}.{method.name}", _code(shown), method.text])


def _code(signature: str) -> str:
    return f"```python\n{signature}\n```"
