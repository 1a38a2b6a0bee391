"""What a client may ask of the tokens of one request: one type, validated once, with a bound on every field.

Names and defaults follow vLLM's `SamplingParams`, so that code moves over by changing an import.
"""

from typing import Any

import msgspec

from quire.core.checks import MAX_LOGPROBS, MAX_TOKENS, check_int, check_number, check_strings, check_token_ids, invalid
from quire.core.reasoning import ReasoningPart
from quire.core.speech import DETECT, MOST_FORCED, SpeechRules
from quire.core.structured import StructuredOutput

# Bounds on what one request may cost. Each list below becomes work per token or per step.
MAX_N = 128
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGIT_BIAS = 4096
MAX_BAD_WORDS = 1024
MAX_BAD_WORD_LENGTH = 256
MAX_ALLOWED_TOKEN_IDS = 1 << 20
MAX_NAME_LENGTH = 256
MAX_PRIORITY = 1 << 31
MAX_PROCESSORS = 8
MAX_PROCESSOR_ARGS = 4096
"""Bytes, as JSON, of what one logits processor is told."""

_FLAGS = (
    "ignore_eos",
    "include_stop_str_in_output",
    "detokenize",
    "skip_special_tokens",
    "use_prefix_cache",
    "retain_prefix",
)


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the tokens of a request are chosen, when they end, and how the request is treated while it waits."""

    # how many, how random
    n: int = 1
    """Sequences to return."""
    best_of: int | None = None
    """Sequences to generate from the one prompt, of which the `n` most likely are returned; unset: `n`."""
    temperature: float = 1.0
    """0 takes the most likely token every time."""
    top_p: float = 1.0
    """Keep only the most likely tokens whose probabilities add up to this."""
    top_k: int = 0
    """Keep only the k most likely tokens; 0 or -1 keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the most likely one."""
    seed: int | None = None
    """Noise is a function of (seed, sequence, position): the same seed gives the same text in any batch."""

    # when it ends
    stop: tuple[str, ...] | str = ()
    """Strings that end the text, which does not include them."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end it, beside the model's own."""
    ignore_eos: bool = False
    """Go on after the model's end token, until another limit."""
    max_tokens: int | None = 16
    """None: as many as the context holds."""
    min_tokens: int = 0
    """The model's end token and `stop_token_ids` are impossible before so many tokens."""
    include_stop_str_in_output: bool = False
    """Leave the string of `stop` that ended the text in it."""

    # which tokens are liked
    presence_penalty: float = 0.0
    """Subtracted from the logits of tokens that the answer has already."""
    frequency_penalty: float = 0.0
    """Subtracted once for every time that the answer has a token."""
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens that prompt or answer have, and multiplies negative ones."""
    logit_bias: dict[int, float] | None = None
    """Added to the logits of these tokens."""
    bad_words: tuple[str, ...] = ()
    """Words that must not come."""
    allowed_token_ids: tuple[int, ...] | None = None
    """Only these tokens may come."""
    structured: StructuredOutput | None = None
    """A language the output must belong to; in Python also a pydantic model, or a JSON schema as a dict."""
    logits_processor_args: dict[str, dict[str, Any]] | None = None
    """Logits processors of plugins that the engine was started with, each with arguments of its own."""
    reasoning: ReasoningPart | None = None
    """The thinking part the output may begin with: no grammar binds it, and it may have a budget."""

    speech: SpeechRules | None = None
    """The rules of a transcript, which the model's own code goes by."""

    # what is returned
    logprobs: int | None = None
    """Log probabilities of this many of the most likely tokens, and of the chosen one, at each output position."""
    logprob_token_ids: tuple[int, ...] = ()
    """With `logprobs`: log probabilities of these tokens at each output position, however unlikely they are."""
    prompt_logprobs: int | None = None
    """Log probabilities of this many of the most likely tokens at each position of the prompt."""
    detokenize: bool = True
    """False leaves the text empty: tokens are enough."""
    skip_special_tokens: bool = True
    """Leave special tokens out of the text."""
    shown_tokens: tuple[int, ...] = ()
    """Special tokens that stand in the text though others are skipped: markers for whoever reads the answer."""

    # how the request is treated
    priority: int = 0
    """Smaller goes first under the `priority` policy."""
    deadline: float | None = None
    """Seconds from arrival after which the request ends with reason `deadline`."""
    cache_salt: str | None = None
    """Requests share cached prefixes only with requests of the same salt."""
    use_prefix_cache: bool = True
    """False neither reads nor fills the prefix cache."""
    retain_prefix: bool = False
    """The prompt is wanted again, and its KV outlives that of other prompts in the prefix cache; a hint."""

    def __post_init__(self) -> None:
        for name in ("stop", "bad_words", "stop_token_ids", "allowed_token_ids", "shown_tokens", "logprob_token_ids"):
            value = getattr(self, name)
            if isinstance(value, str):
                msgspec.structs.force_setattr(self, name, (value,))
            elif isinstance(value, list):
                msgspec.structs.force_setattr(self, name, tuple(value))
            elif value is None and name != "allowed_token_ids":  # vLLM's way to say none
                msgspec.structs.force_setattr(self, name, ())
        if self.structured is not None:
            msgspec.structs.force_setattr(self, "structured", StructuredOutput.of(self.structured))
        self._check_counts()
        self._check_numbers()
        self._check_flags()
        self._check_lists()

    @property
    def num_sequences(self) -> int:
        """How many sequences are generated."""
        return self.best_of or self.n

    def _check_counts(self) -> None:
        check_int("n", self.n, 1, MAX_N)
        if self.best_of is not None:
            check_int("best_of", self.best_of, 1, MAX_N)
            if self.best_of < self.n:
                raise invalid("best_of", self.best_of, f"at least n, which is {self.n}")
        check_int("top_k", self.top_k, -1, MAX_TOKENS)
        check_int("min_tokens", self.min_tokens, 0, MAX_TOKENS)
        check_int("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if self.seed is not None:
            check_int("seed", self.seed, -(1 << 63), (1 << 63) - 1)
        if self.max_tokens is not None:
            check_int("max_tokens", self.max_tokens, 1, MAX_TOKENS)
            if self.min_tokens > self.max_tokens:
                raise invalid("min_tokens", self.min_tokens, f"at most max_tokens, which is {self.max_tokens}")
        for name in ("logprobs", "prompt_logprobs"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 0, MAX_LOGPROBS)

    def _check_numbers(self) -> None:
        check_number("temperature", self.temperature, 0.0, 100.0)
        check_number("top_p", self.top_p, 0.0, 1.0, low_open=True)
        check_number("min_p", self.min_p, 0.0, 1.0)
        check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        check_number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        if self.deadline is not None:
            check_number("deadline", self.deadline, 0.0, 1e9, low_open=True)

    def _check_flags(self) -> None:
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise invalid(name, getattr(self, name), "true or false")

    def _check_lists(self) -> None:
        check_strings("stop", self.stop, MAX_STOP_STRINGS, MAX_STOP_LENGTH)
        check_strings("bad_words", self.bad_words, MAX_BAD_WORDS, MAX_BAD_WORD_LENGTH)
        check_token_ids("stop_token_ids", self.stop_token_ids, MAX_STOP_TOKEN_IDS)
        check_token_ids("shown_tokens", self.shown_tokens, MAX_STOP_TOKEN_IDS)
        check_token_ids("logprob_token_ids", self.logprob_token_ids, MAX_LOGPROBS)
        if self.logprob_token_ids and self.logprobs is None:
            raise invalid("logprob_token_ids", list(self.logprob_token_ids), "left out unless logprobs is given")
        if self.stop and not self.detokenize:
            raise invalid("stop", list(self.stop), "empty when detokenize is false (or use stop_token_ids)")
        if self.allowed_token_ids is not None:
            check_token_ids("allowed_token_ids", self.allowed_token_ids, MAX_ALLOWED_TOKEN_IDS, at_least=1)
        if self.logit_bias is not None:
            check_token_ids("logit_bias", tuple(self.logit_bias), MAX_LOGIT_BIAS)
            for token, bias in self.logit_bias.items():
                check_number(f"logit_bias[{token}]", bias, -100.0, 100.0)
        if self.logits_processor_args is not None:
            self._check_processors(self.logits_processor_args)
        if self.speech is not None:
            forced = [token for token in self.speech.forced if token != DETECT]
            check_token_ids("speech.forced", tuple(forced), MOST_FORCED)
        salt = self.cache_salt
        if salt is not None and (not isinstance(salt, str) or not 0 < len(salt) <= MAX_NAME_LENGTH):
            raise invalid("cache_salt", salt, f"text of 1 to {MAX_NAME_LENGTH} characters")

    def _check_processors(self, given: object) -> None:
        name = "logits_processor_args"
        if not isinstance(given, dict) or not all(isinstance(each, dict) for each in given.values()):
            raise invalid(name, given, 'an object of objects, such as {"name": {}}')
        if len(given) > MAX_PROCESSORS or any(not 0 < len(each) <= MAX_NAME_LENGTH for each in given):
            raise invalid(name, f"{len(given)} entries", f"at most {MAX_PROCESSORS} logits processors, by name")
        for processor, arguments in given.items():
            try:
                size = len(msgspec.json.encode(arguments))
            except (TypeError, ValueError, RecursionError) as error:
                raise invalid(f"{name}.{processor}", arguments, f"an object as JSON has them ({error})") from None
            if size > MAX_PROCESSOR_ARGS:
                raise invalid(f"{name}.{processor}", f"{size} bytes", f"at most {MAX_PROCESSOR_ARGS} bytes of JSON")
