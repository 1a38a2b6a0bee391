"""From messages to the tokens of a prompt, the oldest turns dropped where the client allows it."""

from typing import TYPE_CHECKING

from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Tools
from quire.protocol.responses.items import Message
from quire.server.media_desk import EncodedPrompt
from quire.text.room import room_for_prompt

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def whole_prompt(
    serving: "Serving", messages: list[Message], tools: Tools, reasoning_options: ReasoningOptions, tenant: str
) -> EncodedPrompt:
    """Text, tokens and media."""
    await serving.check_tools(tools)
    variables = reasoning_options.variables(serving.accepts)
    return await serving.encode_messages(messages, tenant, tools=tools.for_template(), variables=variables)


async def fitting_prompt(
    serving: "Serving",
    messages: list[Message],
    max_tokens: int | None,
    tools: Tools,
    reasoning_options: ReasoningOptions,
    tenant: str,
) -> EncodedPrompt:
    """As few of the oldest turns dropped as leave room for the answer; what the system says at the start stays."""
    prompt = await whole_prompt(serving, messages, tools, reasoning_options, tenant)
    room = room_for_prompt(serving.max_model_len, max_tokens)
    if len(prompt.tokens) <= room:
        return prompt
    head = 1 if messages[0]["role"] == "system" else 0
    # Templates want a conversation to begin with the user.
    starts = [place for place, message in enumerate(messages) if message["role"] == "user" and place > head]
    low, high = 0, len(starts) - 1
    while low <= high:  # the fewer turns, the fewer tokens: the first start that fits is found by halving
        middle = (low + high) // 2
        kept = [*messages[:head], *messages[starts[middle] :]]
        tried = await whole_prompt(serving, kept, tools, reasoning_options, tenant)
        # Where not even the last turn fits, it is what is tried last, and the engine says by how much it is too long.
        if len(tried.tokens) <= room or low == len(starts) - 1:
            prompt, high = tried, middle - 1
        else:
            low = middle + 1
    return prompt
