"""What a compiler reads in place of ops, and that what is not compiled goes straight to the dispatch table."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from quire.ops import dispatch, functional
from quire.ops.compiled import COMPILED, compile_definitions

X, W, B = torch.randn(3, 8), torch.randn(8), torch.randn(8)
CALLS: dict[Callable[..., Any], tuple[Any, ...]] = {
    functional.rms_norm: (X, W, 1e-5),
    functional.add_rms_norm: (X, torch.randn(3, 8), W, 1e-5),
    functional.layer_norm: (X, W, B, 1e-5),
    functional.add_layer_norm: (X, torch.randn(3, 8), W, None, 1e-5),
    functional.activate: (X, "silu"),
    functional.gated_activation: (X, "gelu"),
    functional.linear: (X, torch.randn(5, 8)),
}


def test_ops_go_straight_to_the_table() -> None:
    assert functional.implementation is dispatch.implementation


@pytest.mark.parametrize("op", COMPILED, ids=lambda op: op.__name__)
def test_a_compiler_reads_the_definition(op: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given = CALLS[op]
    expected = op(*given)
    compile_definitions()
    monkeypatch.setattr(functional, "implementation", None)
    with pytest.raises(TypeError):
        op(*given)  # what is not compiled asks the table

    @torch.compile(backend="eager", fullgraph=True)
    def compiled() -> Any:
        return op(*given)

    torch.testing.assert_close(compiled(), expected)
