"""Schemas as llama.cpp and Ollama read them: an object has the properties that are listed, and no others."""

from typing import Any


def closed(schema: Any) -> Any:
    """The schema with `additionalProperties: false` wherever properties are listed and it says nothing of others."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: value if name in ("enum", "const", "default") else closed(value) for name, value in schema.items()}
    if isinstance(found.get("properties"), dict) and "type" in found and "additionalProperties" not in found:
        found["additionalProperties"] = False
    return found
