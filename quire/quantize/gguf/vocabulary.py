"""A folder's byte-level BPE tokenizer as the metadata of a GGUF file."""

import json
from typing import Any

import tokenizers

from quire.core.errors import CheckpointError
from quire.quantize.source import Source
from quire.text.pretokenizers import find_variant
from quire.text.spm_vocabulary import PieceType
from quire.text.template_sources import templates_in_folder
from quire.text.tokenizer import Tokenizer

_PRE = ("llama-bpe", "qwen2", "smollm", "tekken", "gpt-2", "dbrx", "stablelm2", "deepseek-coder", "deepseek-llm")
"""Names of `tokenizer.ggml.pre` that are tried; one that cuts texts as the tokenizer does is written."""
_SAMPLE = (
    "Hello world's 1234567 and 12 of 3.14; WE'LL see: HTTPServer caféNaïve\n\n\t  def f(x):\r\n    return x**2  #!?\n"
    "\u4f60\u597d\uff0c\u4e16\u754c \u3053\u3093 \u0417\u0434\u0440\u0430\u0432 "
    "\ud55c\uad6d\uc5b4 \U0001f600\u200d  end /path/to\n\n\n"
)


def vocabulary_metadata(source: Source, tokenizer: Tokenizer) -> dict[str, Any]:
    """Tokens, merges and special tokens; a tokenizer that the format cannot say is refused."""
    parsed = json.loads(tokenizer.as_json())
    model = parsed["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        kind = "SentencePiece's BPE" if model.get("byte_fallback") else str(model.get("type"))
        raise _refused(source, f"of kind {kind}")
    values: dict[str, Any] = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": _pre(source, tokenizer, model)}
    tokens, types = _tokens(parsed, source.spec.vocab_size)
    merges = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
    values |= {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": merges}
    eos, *others = tokenizer.eos_token_ids or (None,)
    ids = {"bos": tokenizer.bos_token_id, "eos": eos, "padding": tokenizer.pad_token_id}
    ids |= {"unknown": tokenizer.unk_token_id, "eot": next(iter(others), None)}
    values |= {f"tokenizer.ggml.{name}_token_id": number for name, number in ids.items() if number is not None}
    values["tokenizer.ggml.add_bos_token"] = tokenizer.encode("")[:1] == [tokenizer.bos_token_id]
    folder = source.path if source.path.is_dir() else source.path.parent
    template = next(iter(templates_in_folder(folder).values()), None)
    return values if template is None else values | {"tokenizer.chat_template": template}


def check_alike(source: Source, before: Tokenizer, after: Tokenizer, texts: list[str]) -> None:
    """Raise unless a written tokenizer makes the same tokens of texts."""
    for text in (_SAMPLE, *texts):
        if before.encode(text) != after.encode(text):
            raise _refused(source, "that GGUF's rules cut otherwise")


def _tokens(parsed: dict[str, Any], count: int) -> tuple[list[str], list[int]]:
    """Tokens and their types by id; rows of the embedding that no token has get names of their own."""
    tokens = [f"[PAD{number}]" for number in range(count)]
    types = [int(PieceType.UNUSED)] * count
    for token, number in parsed["model"]["vocab"].items():
        if number < count:
            tokens[number], types[number] = token, int(PieceType.NORMAL)
    for added in parsed.get("added_tokens", []):
        if added["id"] < count:
            kind = PieceType.CONTROL if added["special"] else PieceType.USER_DEFINED
            tokens[added["id"]], types[added["id"]] = added["content"], int(kind)
    return tokens, types


def _pre(source: Source, tokenizer: Tokenizer, model: dict[str, Any]) -> str:
    cut = tokenizers.Tokenizer.from_str(tokenizer.as_json()).pre_tokenizer
    if cut is not None:
        wanted = [piece for piece, _ in cut.pre_tokenize_str(_SAMPLE)]
        for name in _PRE:
            variant = find_variant(name, "quire")
            found = [piece for piece, _ in variant.pre_tokenizer().pre_tokenize_str(_SAMPLE)]
            if found == wanted and variant.ignore_merges == bool(model.get("ignore_merges")):
                return name
    raise _refused(source, f"that cuts texts in none of the ways {', '.join(_PRE)}")


def _refused(source: Source, what: str) -> CheckpointError:
    return CheckpointError(
        f"{source.path} has a tokenizer {what}, which quire does not write into GGUF files; take a GGUF file of the "
        "model, or a scheme that writes a folder."
    )
