"""What configs say of rotary positions."""

from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.spec.rope import KINDS, RopeSpec, read_rope


def read(head_dim: int = 64, **config: Any) -> RopeSpec:
    return read_rope({"max_position_embeddings": 4096} | config, head_dim)


def test_the_usual() -> None:
    rope = read()
    assert rope == RopeSpec(64, 10000.0, 4096)
    assert (rope.size, rope.changes_at, rope.sections) == (64, None, ())


def test_what_a_family_says_gives_way_to_the_config() -> None:
    config = {"max_position_embeddings": 8}
    assert (read_rope(config, 64, theta=5.0, partial=0.25).theta, read_rope(config, 64, partial=0.25).size) == (5.0, 16)
    given = read_rope(config | {"rope_theta": 7.0, "partial_rotary_factor": 0.5}, 64, theta=5.0, partial=0.25)
    assert (given.theta, given.size) == (7.0, 32)


def test_new_configs_have_everything_in_rope_parameters() -> None:
    rope = read(rope_parameters={"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.75})
    assert (rope.theta, rope.size, rope.kind) == (1e6, 48, "default")


@pytest.mark.parametrize(
    ("name", "kind"), [("su", "longrope"), ("mrope", "default"), *((kind, kind) for kind in KINDS)]
)
@pytest.mark.parametrize("field", ["type", "rope_type"])
def test_kinds_under_all_their_names(field: str, name: str, kind: str) -> None:
    assert read(rope_scaling={field: name}).kind == kind


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(CheckpointError, match="rope type 'spiral' is not known; quire has default, linear, dynamic"):
        read(rope_scaling={"rope_type": "spiral"})


def test_sections_are_axes_of_positions() -> None:
    assert read(rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]}).sections == (16, 24, 24)


@pytest.mark.parametrize(
    ("scaling", "more", "expected"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, {}, 4096),
        ({"rope_type": "dynamic", "original_max_position_embeddings": 100}, {}, 4096),
        ({"rope_type": "longrope", "original_max_position_embeddings": 100}, {}, 100),
        ({"rope_type": "longrope"}, {"original_max_position_embeddings": 200}, 200),
        ({"rope_type": "longrope"}, {}, 4096),
        ({"rope_type": "yarn", "original_max_position_embeddings": 100}, {}, None),
        ({"rope_type": "llama3", "original_max_position_embeddings": 100}, {}, None),
    ],
)
def test_where_angles_change(scaling: dict[str, Any], more: dict[str, Any], expected: int | None) -> None:
    assert read(rope_scaling=scaling, **more).changes_at == expected
