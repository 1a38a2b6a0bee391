"""Encoders are quantized like decoders, and judged by their embeddings."""

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from quire.models.loading.checkpoint import open_checkpoint
from quire.quantize.options import read_options
from quire.quantize.run import quantize
from tests.text import vocabularies


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert") / "model"
    tokenizer = vocabularies.wordpiece()
    torch.manual_seed(5)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    BertModel(BertConfig(vocab_size=tokenizer.get_vocab_size(), **sizes)).save_pretrained(folder)
    vocabularies.write_folder(folder, tokenizer)
    return folder


@pytest.mark.parametrize(("scheme", "least"), [("int8", 0.99), ("fp8", 0.99), ("int4", 0.9)])
def test_embeddings_stay_what_they_were(bert: Path, tmp_path: Path, scheme: str, least: float) -> None:
    done = quantize(str(bert), tmp_path / "out", read_options(scheme, method="rtn"))
    assert done.before is not None
    assert done.after is not None
    assert done.before.embeddings is not None
    assert done.after.embeddings is not None
    alike = torch.nn.functional.cosine_similarity(done.before.embeddings, done.after.embeddings)
    assert least < float(alike.mean()) < 1
    assert "cosine similarity" in done.after.beside(done.before)
    assert len(open_checkpoint(tmp_path / "out").schemes) == 6 * 2
