"""A causal LM that scores by the logits of its answer is quantized whole, with its output head."""

from pathlib import Path

import pytest

from quire.engine.llm import LLM
from quire.quantize.options import read_options
from quire.quantize.run import quantize
from tests.parity.tiny_reranker import QUERY, TEXTS, TinyReranker


@pytest.mark.parametrize("tied", [True, False])
def test_scores_stay_close(tied: bool, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    model.mkdir()
    oracle = TinyReranker(model, tie_word_embeddings=tied, hidden_size=64, intermediate_size=128)
    done = quantize(str(model), out, read_options("int8", method="rtn"))
    assert done.after is not None
    assert "perplexity" in done.after.beside(done.before), "it is judged as what it was trained for"
    llm = LLM(str(out), dtype="float32")
    expected = [oracle.score(oracle.prompt(QUERY, text)) for text in TEXTS]
    assert [output.outputs.score for output in llm.score(QUERY, TEXTS)] == pytest.approx(expected, abs=0.03)
    llm.close()
