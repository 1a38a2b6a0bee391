"""Whether the schemas of tools can be held to, looked at one by one so that an error names the tool."""

import json
from collections.abc import Callable

from quire.core.errors import InvalidRequest
from quire.core.structured import StructuredOutput
from quire.protocol.parsers.tools import Tools


def check_schemas(tools: Tools, check: Callable[[StructuredOutput], object]) -> None:
    """Raises what `check` finds wrong with the parameters of a tool whose calls are bound by a grammar."""
    if not tools.are_constrained:
        return
    for function in tools.callable():
        schema = dict(tools.schema_of(function))
        try:
            if schema["type"] != "object":
                raise InvalidRequest(f"type is {schema['type']!r:.60}; it must be object, for arguments have names")
            check(StructuredOutput(json=json.dumps(schema)))
        except InvalidRequest as error:
            raise InvalidRequest(f"the parameters of the tool {function.name!r}: {error}", field="tools") from None
