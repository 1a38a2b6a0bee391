"""How byte-level BPE vocabularies cut text before merging, by the names GGUF gives them in `tokenizer.ggml.pre`.

Each variant is the list of patterns of the original tokenizer.json, every one applied to the parts the one before left.
"""

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

from quire.core.errors import CheckpointError
from quire.core.nearest import did_you_mean


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to cut text, and what else goes with it."""

    patterns: tuple[str, ...]
    nfc: bool = False
    """Whether characters are composed first."""
    ignore_merges: bool = False
    """Whether a part that is a token stays whole even if merges would not make it."""
    add_bos: bool = False
    """Whether the bos token is put before a text where the file does not say."""

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self.patterns]
        return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
# Words that begin a new part where small letters are followed by large ones.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CAMEL_LOW = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+"
_CAMEL_UP = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_SIGNS_OR_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_ENGLISH}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN2 = rf"{_ENGLISH}|{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN35 = rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_TEKKEN = rf"{_CAMEL_LOW}|{_CAMEL_UP}|\p{{N}}|{_SIGNS_OR_SLASH}|{_SPACES}"
_GPT4O = rf"{_CAMEL_LOW}{_ENGLISH}?|{_CAMEL_UP}{_ENGLISH}?|\p{{N}}{{1,3}}|{_SIGNS_OR_SLASH}|{_SPACES}"
_ASCII_SIGN = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK_V3 = (
    rf"{_ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
# By code point, because several of these have twins elsewhere that look the same.
_CJK = r"[\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
_HAN_AND_KANA = r"[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+"
_SPACED_SIGNS = r"\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+"
# Letters of alphabets that have cases, as DeepSeek lists them.
_CASED_RANGES = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 "
    "104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_CASED_LETTERS = "".join("-".join(rf"\x{{{end}}}" for end in part.split("-")) for part in _CASED_RANGES.split())
_CASED = rf"\s?[{_CASED_LETTERS}]+"
SPACES_AT_END = r"(?<!\s)\s+$"
"""The original, `\\s+$`, tries a run of spaces anew from each of its spaces: 50,000 of them took 20 s, now 13 ms."""
_BLOOM = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+"
_PUNCTUATION = r"[\p{P}\$\+<=>\^~\|`]+"
_HALVING_SPACES = "|".join(
    [*(rf"\s{{{size}}}(?!\S)" for size in (512, 256, 128, 64, 32, 16, 8, 4)), r"\s{1,2}(?!\S)|\s{1}"]
)

_VARIANTS: dict[str, Variant] = {
    "default gpt2": Variant((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt2": Variant((_GPT2,)),
    "gpt_neox": Variant((_GPT2,), nfc=True),
    "llama3": Variant((_LLAMA3,), ignore_merges=True, add_bos=True),
    "llama3 merging": Variant((_LLAMA3,)),
    "jais2": Variant((rf"{_ENGLISH}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|{_HALVING_SPACES}",)),
    "digits": Variant((r"\p{N}", _GPT2)),
    "command-r": Variant((r"\p{N}", _GPT2), nfc=True),
    "falcon": Variant((_PUNCTUATION, _GPT2, "[0-9][0-9][0-9]")),
    "qwen2": Variant((_QWEN2,), nfc=True),
    "qwen2 as given": Variant((_QWEN2,)),
    "qwen35": Variant((_QWEN35,), nfc=True),
    "deepseek-llm": Variant((r"[\r\n]", _CASED, _SPACED_SIGNS, SPACES_AT_END, _CJK, r"\p{N}")),
    "deepseek-coder": Variant((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")),
    "deepseek-v3": Variant((r"\p{N}{1,3}", _HAN_AND_KANA, _DEEPSEEK_V3)),
    "bloom": Variant((_BLOOM,)),
    "viking": Variant((_BLOOM, r"\p{N}")),
    "tekken": Variant((_TEKKEN,), ignore_merges=True, add_bos=True),
    "gpt-4o": Variant((_GPT4O,)),
    "tiny_aya": Variant((r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O)),
    "chameleon": Variant(
        (
            r"<sentinel:[0-9]+>",
            r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
            r"([\t\n]|    |  )",
            r"\p{N}",
            r"[\p{P}!-/:-@\[-`{-~]",
            _GPT2,
        ),
        add_bos=True,
    ),
    "bailingmoe": Variant(
        (
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
            r"|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "seed-coder": Variant((rf"{_ENGLISH}|{_WORD}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",)),
    "exaone-moe": Variant(
        (
            rf"{_ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
        )
    ),
    "superbpe": Variant((r"\p{N}+", r"(?=(\d{3})+(?!\d))")),
    "minicpm5": Variant((r"\p{N}{1,3}", rf"{_ENGLISH}|{_WORD}|\p{{N}}+|{_SIGNS}|{_SPACES}"), ignore_merges=True),
}

_NAMES: dict[str, str] = {
    name: variant
    for variant, names in {
        "default gpt2": "default",
        "gpt2": "gpt-2 phi-2 gigachat jina-es jina-de jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4 jais "
        "trillion granite-docling",
        "gpt_neox": "olmo mpt",
        "llama3": "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        "llama3 merging": "dbrx smaug-bpe glm4 chatglm-bpe",
        "jais2": "jais-2",
        "digits": "starcoder refact smollm codeshell exaone minerva-7b mellum2",
        "command-r": "command-r",
        "falcon": "falcon",
        "qwen2": "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez",
        "qwen2 as given": "stablelm2 hunyuan solar-open grok-2",
        "qwen35": "qwen35",
        "deepseek-llm": "deepseek-llm",
        "deepseek-coder": "deepseek-coder",
        "deepseek-v3": "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
        "bloom": "bloom poro-chat gpt3-finnish",
        "viking": "viking",
        "tekken": "tekken",
        "gpt-4o": "gpt-4o llama4 kanana2 talkie minimax-m2",
        "tiny_aya": "tiny_aya cohere2moe",
        "chameleon": "chameleon",
        "bailingmoe": "bailingmoe bailingmoe2 llada-moe",
        "seed-coder": "seed-coder",
        "exaone-moe": "exaone-moe",
        "superbpe": "superbpe",
        "minicpm5": "minicpm5",
    }.items()
    for name in names.split()
}


def variant_names() -> tuple[str, ...]:
    """Every name that `find_variant` knows."""
    return tuple(_NAMES)


def find_variant(name: str, source: str) -> Variant:
    """The variant called `name`; `source` is the file that asks for it."""
    if name not in _NAMES:
        raise CheckpointError(
            f"{source} cuts text as {name!r} before merging (tokenizer.ggml.pre), which quire does not know."
            f"{did_you_mean(name, _NAMES)} Give the tokenizer as a folder with a tokenizer.json instead."
        )
    return _VARIANTS[_NAMES[name]]
