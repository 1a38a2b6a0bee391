"""What quantizing costs the default model, expanded to 16 bits: a small one, which suffers more than larger ones do."""

from pathlib import Path
from typing import Any

import pytest

from quire.models.loading.default_model import fetch_default_model
from quire.quantize.options import read_options
from quire.quantize.run import quantize

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expanded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("default") / "bfloat16"
    quantize(str(fetch_default_model()), out, read_options("bfloat16"), measure=False)
    return out


@pytest.mark.parametrize(
    ("name", "options", "most"),
    [
        ("fp8", {"scheme": "fp8"}, 0.012),
        ("int8", {"scheme": "int8"}, 0.008),
        ("q8_0.gguf", {"scheme": "q8_0"}, 0.005),
    ],
)
def test_perplexity_stays_near(expanded: Path, tmp_path: Path, name: str, options: dict[str, Any], most: float) -> None:
    done = quantize(str(expanded), tmp_path / name, read_options(**options))
    assert done.before is not None
    assert done.after is not None
    assert done.before.perplexity is not None
    assert done.after.perplexity is not None
    assert abs(done.after.perplexity / done.before.perplexity - 1) < most
