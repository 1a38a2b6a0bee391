"""What bodies of the render routes ask for beside tokens, and when it can be told."""

import pytest

from quire.core.errors import InvalidRequest
from quire.protocol.vllm.rendered import MASK, OFFSETS, check_mask, split_wanted


def test_wishes_are_taken_out_of_the_body() -> None:
    assert split_wanted({"prompt": "x", OFFSETS: True, MASK: None}) == ({"prompt": "x"}, frozenset({OFFSETS}))
    assert split_wanted({"prompt": "x", OFFSETS: False}) == ({"prompt": "x"}, frozenset())


@pytest.mark.parametrize("value", [1, 0, "true", []])
def test_a_wish_is_true_or_false(value: object) -> None:
    with pytest.raises(InvalidRequest, match=OFFSETS):
        split_wanted({OFFSETS: value})


@pytest.mark.parametrize("tag", ["{% generation %}", "{%- generation %}"])
def test_what_a_template_marks_is_not_told_as_nothing(tag: str) -> None:
    check_mask(None)
    check_mask("{{ messages[0].content }}{% if add_generation_prompt %}x{% endif %}")
    with pytest.raises(InvalidRequest, match="leave it out"):
        check_mask(f"{tag}x{{% endgeneration %}}")
