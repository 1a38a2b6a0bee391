"""GrammarChecks: grammars and schemas looked at before a request is made of them, away from the event loop.

Looking at one that is not known yet takes too long to do it while streams wait; one that is known costs nothing.
"""

from functools import partial

from quire.core.sampling_params import SamplingParams
from quire.core.structured import Loosened, StructuredOutput
from quire.engine.grammar.checker import GrammarChecker
from quire.protocol.parsers.tool_schemas import check_schemas
from quire.protocol.parsers.tools import Tools
from quire.serving.tokenizer_service import TokenizerService


class GrammarChecks:
    """Every method raises an InvalidRequest for what no grammar can hold."""

    def __init__(self, texts: TokenizerService, checker: GrammarChecker) -> None:
        self._texts = texts
        self._checker = checker

    async def check(self, params: SamplingParams) -> None:
        """The grammar of a request, if it has one."""
        if params.structured is not None and not self._checker.is_known(params.structured):
            await self._texts.in_turn(partial(self._checker.check, params.structured))

    async def check_tools(self, tools: Tools) -> None:
        """The schemas of tools whose calls are bound by them. The error names the tool."""
        if tools.are_constrained:
            await self._texts.in_turn(partial(check_schemas, tools, self._checker.check))

    async def loosened(self, structured: StructuredOutput) -> Loosened:
        """A schema that is not strict as engines take it, and what was left out."""
        if self._checker.is_known(structured):
            return self._checker.check(structured)
        return await self._texts.in_turn(partial(self._checker.check, structured))

    async def validate(self, schema: str, text: str) -> str | None:
        """What is wrong with a finished text by a JSON schema, if anything."""
        return await self._texts.in_turn(partial(self._checker.validate, schema, text))
