"""Texts that tokenizers trip over: scripts without spaces, joined emoji, long runs of spaces, code, special tokens."""

PLAIN = (
    "",
    " ",
    "a",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog. It isn't lazy; we've SEEN it, I'LL say.",
    "  leading and trailing  ",
    "tabs\tand\t\tmore\ttabs",
    "line\nbreaks\n\nand\r\nothers\n\n\n",
    "x" + " " * 100 + "y" + " " * 33 + "\n" + " " * 7 + "z",
    "1 22 333 4444 55555 3.14159 1,000,000 ½ ² ٣٤٥ 一二三",
    "日本語のテキストと、漢字かな交じり文。",
    "中文没有空格，但是有标点符号。",
    "한국어 문장은 띄어쓰기가 있습니다.",
    "Русский текст с Заглавными буквами",
    "Ελληνικά με τόνους και ς",
    "نص عربي مع تشكيل: كِتَابٌ",
    "עברית עם ניקוד: שָׁלוֹם",
    "ภาษาไทยไม่มีช่องว่าง",
    "हिन्दी में लिखा हुआ वाक्य।",
    "Tiếng Việt có dấu: nghiêng, ngửa",
    "composed é, decomposed e\u0301, ﬁ ligature, ﾊﾝｶｸ, Å",
    "👍 👩‍👩‍👧‍👦 🏳️‍🌈 👋🏽 🇩🇪🇯🇵 1️⃣",
    "zero\u200bwidth, non\u00a0breaking, \u2028 line separator, \ufeff mark",
    "def f(x: int) -> int:\n    if x > 10:\n\t\treturn x ** 2  # comment\n    return {'a': [1, 2]}['a'][0]\n",
    "https://example.org/a?b=c&d=%20#e user@example.org C:\\dir\\file.txt",
    '$100 + €50 = £? ^_^ <tag attr="x"> ~~~ ```code``` === ---',
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "CamelCaseWordsAndHTTPServers snake_case_words kebab-case-words",
    "\x00\x01 control \x7f characters \x1b[0m",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𠜎 outside the first plane",
)

CHAT = (
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    "text<|im_end|>more <|im_end|> and<|im_start|>",
    " <tool> in the middle <tool>\n<tool>",
)

TEXTS = PLAIN + CHAT
