"""What is decided once, when a request arrives: whether it can ever run, and how long its sequences may get."""

from quire.config.resolved import StepLimits
from quire.core.errors import RequestTooLarge
from quire.core.request import Request
from quire.kvcache.manager import KVManager


def longest_total(request: Request, limits: StepLimits, kv: KVManager) -> int:
    """Tokens, prompt included, at which a sequence of `request` ends; refuses a request that can never fit."""
    if request.pooling is not None:
        return _whole_prompt(len(request.prompt.tokens), limits, kv)
    prompt, asked = len(request.prompt.tokens), request.params.max_tokens
    if prompt >= limits.max_model_len:
        raise RequestTooLarge(
            f"the prompt has {prompt} tokens and the context holds {limits.max_model_len}, which leaves no room for "
            "an answer; shorten the prompt or serve with a larger --max-model-len",
            field="prompt",
        )
    # a resumed sequence has tokens of its own behind the prompt; it was accepted with its max_tokens before
    total = limits.max_model_len if asked is None else min(limits.max_model_len, prompt + asked)
    if _fits(total, limits, kv):
        return total
    if asked is None and _fits(prompt + 1, limits, kv):
        return _longest_that_fits(prompt + 1, total, limits, kv)
    needed = kv.most_blocks(total, _chunk(limits))
    raise RequestTooLarge(
        f"{prompt} prompt tokens and up to {total - prompt} output tokens need {needed} KV blocks of "
        f"{kv.block_size} tokens, and the cache has {kv.device.pool.num_blocks}; shorten the prompt, lower max_tokens "
        "or give the cache more memory",
        field="prompt" if asked is None else "max_tokens",
    )


def _whole_prompt(prompt: int, limits: StepLimits, kv: KVManager) -> int:
    """A prompt that is only read needs no room for an answer."""
    if prompt > limits.max_model_len:
        raise RequestTooLarge(
            f"a prompt has {prompt} tokens, and the model takes {limits.max_model_len}; shorten it, or set "
            "truncate_prompt_tokens to -1 to have it cut",
            field="prompt",
        )
    if not _fits(prompt, limits, kv):
        raise RequestTooLarge(
            f"{prompt} prompt tokens need {kv.most_blocks(prompt, _chunk(limits))} KV blocks of {kv.block_size} "
            f"tokens, and the cache has {kv.device.pool.num_blocks}; shorten the prompt or give the cache more memory",
            field="prompt",
        )
    return prompt


def _chunk(limits: StepLimits) -> int:
    return limits.max_num_batched_tokens + limits.num_lookahead_tokens


def _fits(total: int, limits: StepLimits, kv: KVManager) -> bool:
    blocks = kv.most_blocks(total + limits.num_lookahead_tokens, _chunk(limits))
    return blocks <= kv.device.pool.num_blocks


def _longest_that_fits(low: int, high: int, limits: StepLimits, kv: KVManager) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _fits(middle, limits, kv) else (low, middle)
    return low
