"""From messages to the tokens of a prompt, the oldest turns dropped where the client allows it."""

from typing import TYPE_CHECKING

from quire.protocol.parsers.reasoning_options import ReasoningOptions
from quire.protocol.parsers.tools import Tools
from quire.protocol.responses.items import Message
from quire.text.room import room_for_prompt

if TYPE_CHECKING:
    from quire.server.serving import Serving


async def whole_prompt(
    serving: "Serving", messages: list[Message], tools: Tools, reasoning_options: ReasoningOptions
) -> tuple[str, list[int]]:
    """Text and tokens."""
    await serving.check_tools(tools)
    text = await serving.render(
        messages, tools=tools.for_template(), variables=reasoning_options.variables(serving.accepts)
    )
    # The template wrote the special tokens itself.
    return text, await serving.encode(text, add_special_tokens=False)


async def fitting_prompt(
    serving: "Serving",
    messages: list[Message],
    max_tokens: int | None,
    tools: Tools,
    reasoning_options: ReasoningOptions,
) -> tuple[str, list[int]]:
    """As few of the oldest turns dropped as leave room for the answer; what the system says at the start stays."""
    prompt = await whole_prompt(serving, messages, tools, reasoning_options)
    room = room_for_prompt(serving.max_model_len, max_tokens)
    if len(prompt[1]) <= room:
        return prompt
    head = 1 if messages[0]["role"] == "system" else 0
    # Templates want a conversation to begin with the user.
    starts = [place for place, message in enumerate(messages) if message["role"] == "user" and place > head]
    low, high = 0, len(starts) - 1
    while low <= high:  # the fewer turns, the fewer tokens: the first start that fits is found by halving
        middle = (low + high) // 2
        tried = await whole_prompt(serving, [*messages[:head], *messages[starts[middle] :]], tools, reasoning_options)
        # Where not even the last turn fits, it is what is tried last, and the engine says by how much it is too long.
        if len(tried[1]) <= room or low == len(starts) - 1:
            prompt, high = tried, middle - 1
        else:
            low = middle + 1
    return prompt
