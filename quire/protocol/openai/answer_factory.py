"""From a body that was read to the shapes of its answer, and to prompts cut as it asks."""

from quire.core.errors import InvalidRequest
from quire.protocol.openai.answers import AnswerHead, ChatAnswer, CompletionAnswer
from quire.protocol.openai.body import ChatBody, CompletionBody
from quire.protocol.openai.logprobs import LogprobWriter
from quire.protocol.parsers.reading import Reading
from quire.text.tokenizer import Tokenizer


def chat_answer(head: AnswerHead, body: ChatBody, tokenizer: Tokenizer, reading: Reading) -> ChatAnswer:
    top = None if body.params.logprob_token_ids else body.params.logprobs or 0
    last = body.messages[-1]
    echoed = str(last["content"] or "") if body.options.echo and last["role"] == "assistant" else ""
    return ChatAnswer(head, body.options, _logprobs(body, tokenizer), top, reading, echoed)


def completion_answer(
    head: AnswerHead, body: CompletionBody, tokenizer: Tokenizer, prompts: list[list[int]]
) -> CompletionAnswer:
    """`prompts` are the body's as the engine reads them."""
    echoed: list[str] = []
    if body.options.echo:
        # of a prompt with a suffix the engine reads more than is said again, and in another order
        said = body.prompts if body.truncate_prompt_tokens is None else prompts
        echoed = [
            given if isinstance(given, str) else tokenizer.decode(given, skip_special_tokens=False) for given in said
        ]
    return CompletionAnswer(head, body.options, _logprobs(body, tokenizer), echoed)


def truncated(
    tokens: list[int], body: ChatBody | CompletionBody, context: int, *, has_media: bool = False
) -> list[int]:
    """The prompt, cut where the body says so: at its beginning, unless it names the other side."""
    asked = body.truncate_prompt_tokens
    if asked is None:
        return tokens
    if has_media:
        raise InvalidRequest(
            "truncate_prompt_tokens is given, and a prompt with images is not cut; leave it out",
            field="truncate_prompt_tokens",
        )
    if asked > context:
        raise InvalidRequest(
            f"truncate_prompt_tokens is {asked}, and the context holds {context} tokens; lower it, or set it to -1",
            field="truncate_prompt_tokens",
        )
    if asked == -1:
        asked = max(context - (body.params.max_tokens or 1), 1)
    return tokens[:asked] if body.keeps_start else tokens[-asked:]


def _logprobs(body: ChatBody | CompletionBody, tokenizer: Tokenizer) -> LogprobWriter:
    return LogprobWriter(tokenizer, as_ids=body.options.tokens_as_ids, skip_special=body.params.skip_special_tokens)
