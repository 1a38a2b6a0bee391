"""The prompt that Qwen3-Reranker was trained with: what stands around a query and a document, and the instruction."""

from quire.text.pairs import PairFrame, Part
from quire.text.tokenizer import Tokenizer

_USUAL_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
_BEHIND = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def reranker_frame(tokenizer: Tokenizer, instruction: str | None) -> PairFrame:
    """The frame whose pairs have the tokens of the published prompt.

    A text brings the space before it and the query the line break behind it, since the tokenizer makes one token of
    " dog", and one of "?" and the line break.
    """
    before, instruct, between, behind = tokenizer.encode_batch(
        [_BEFORE, f"<Instruct>: {instruction or _USUAL_INSTRUCTION}\n<Query>:", "<Document>:", _BEHIND],
        add_special_tokens=False,
    )
    return PairFrame(
        _part([*before, *instruct]), _part(between), _part(behind), around_first=(" ", "\n"), around_second=(" ", "")
    )


def _part(ids: list[int]) -> Part:
    return Part(tuple(ids), (0,) * len(ids))
