"""An answer as it can be compared: what differs between two equal answers (ids, times, cached tokens) is left out."""

from typing import Any

_IDS = {"id", "call_id", "item_id", "request_id", "output_file_id", "input_file_id"}
_TIMES = {"created", "created_at", "completed_at", "expires_at", "timings"}
_TIMES |= {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"}
_CACHED = {"cache_read_input_tokens", "cache_creation_input_tokens", "prompt_tokens_details", "input_tokens_details"}
_VOLATILE = _IDS | _TIMES | _CACHED | {"tokens_cached", "sequence_number", "obfuscation"}
_CLOSE = 1e-6
"""Of numbers of a model whose sums depend on the batch: as near as they must be."""


def comparable(value: Any) -> Any:
    """Without what may differ. Anthropic's input tokens leave out cached ones: here they are together again."""
    if isinstance(value, dict):
        kept = {name: comparable(each) for name, each in value.items() if name not in _VOLATILE}
        if "cache_read_input_tokens" in value:
            kept["input_tokens"] = value["input_tokens"] + value["cache_read_input_tokens"]
        return kept
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return value


def difference(found: Any, wanted: Any, *, loose: bool, path: str = "") -> str | None:
    """Where two answers differ first, in words; None if nowhere. `loose`: numbers may differ in their last digits."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for name in sorted({*found, *wanted}, key=str):
            if name not in found or name not in wanted:
                return f"{path}.{name} is only in the {'reference' if name in wanted else 'answer'}"
            if (told := difference(found[name], wanted[name], loose=loose, path=f"{path}.{name}")) is not None:
                return told
        return None
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        pairs = enumerate(zip(found, wanted, strict=True))
        told_all = (difference(a, b, loose=loose, path=f"{path}[{place}]") for place, (a, b) in pairs)
        return next((told for told in told_all if told is not None), None)
    if loose and isinstance(found, float) and isinstance(wanted, float):
        return None if abs(found - wanted) <= max(_CLOSE, 1e-3 * abs(wanted)) else f"{path}: {found} for {wanted}"
    return None if found == wanted else f"{path}: {str(found)[:200]!r} for {str(wanted)[:200]!r}"


def texts_of(answer: Any) -> list[str]:
    """Every text a model wrote: contents, texts, arguments of calls."""
    if isinstance(answer, dict):
        own = [answer[name] for name in ("content", "text", "arguments") if isinstance(answer.get(name), str)]
        return own + [text for value in answer.values() for text in texts_of(value)]
    if isinstance(answer, list):
        return [text for value in answer for text in texts_of(value)]
    return []


def is_beginning(answer: Any, wanted: Any) -> bool:
    """Whether an answer that was cut short says what the whole one says first."""
    whole = texts_of(wanted)
    return all(any(each.startswith(text) for each in whole) for text in texts_of(answer))


def completion_tokens(answer: Any) -> int | None:
    """As the answer's own usage counts them."""
    usage = answer.get("usage") if isinstance(answer, dict) else None
    return None if not usage else usage.get("completion_tokens", usage.get("output_tokens"))
