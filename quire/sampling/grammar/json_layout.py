"""How JSON is laid out where a schema binds it, and that keywords of schemas are never ignored."""

from typing import Any

# JSON is laid out as Python's json.dumps does: what models write most, never an endless run of spaces, and nothing to
# choose between the parts that a schema fixes, so that they need no step of the model.
JSON_LAYOUT: dict[str, Any] = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    # a keyword is honoured or refused; a schema's own options may not change that
    "lenient": False,
    "coerce_one_of": False,
}
