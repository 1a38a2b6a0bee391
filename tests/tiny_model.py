"""A tiny checkpoint with weights and tokenizer, for tests that go from text to text."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.parity.tiny import VOCABULARY, Tiny, make_tiny

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}|{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def make_text_model(folder: Path, name: str = "llama") -> Tiny:
    """Weights as in the parity tests, with one token for each of the first bytes."""
    tiny = make_tiny(name, folder)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())[: VOCABULARY - 3]
    vocabulary = {"<pad>": 0, "<s>": 1, "</s>": 2} | {letter: place + 3 for place, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<pad>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return tiny
