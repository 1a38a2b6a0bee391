"""Which GGUF file of a repository is meant."""

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_choice import SeveralModels, choose, gguf_models, is_beside, mmproj_beside

FILES = {
    "tiny-Q4_K_M.gguf": 40,
    "tiny-Q8_0.gguf": 80,
    "tiny.IQ4_XS.gguf": 30,
    "BF16/tiny-BF16-00001-of-00002.gguf": 90,
    "BF16/tiny-BF16-00002-of-00002.gguf": 70,
    "mmproj-tiny-F16.gguf": 5,
    "imatrix.gguf": 1,
    "README.md": 3,
}


def test_parts_are_one_model_and_what_goes_with_a_model_is_none() -> None:
    found = gguf_models(FILES)
    assert [(model.tag, model.size, model.num_parts) for model in found] == [
        ("IQ4_XS", 30, 1),
        ("Q4_K_M", 40, 1),
        ("Q8_0", 80, 1),
        ("BF16", 160, 2),
    ]
    assert found[-1].files == ("BF16/tiny-BF16-00001-of-00002.gguf", "BF16/tiny-BF16-00002-of-00002.gguf")


@pytest.mark.parametrize(
    ("tag", "file", "first"),
    [
        ("Q4_K_M", None, "tiny-Q4_K_M.gguf"),
        ("q8_0", None, "tiny-Q8_0.gguf"),
        ("bf16", None, "BF16/tiny-BF16-00001-of-00002.gguf"),
        (None, "tiny.IQ4_XS.gguf", "tiny.IQ4_XS.gguf"),
        (None, "tiny-BF16-00002-of-00002.gguf", "BF16/tiny-BF16-00001-of-00002.gguf"),
        (None, "BF16/tiny-BF16-00001-of-00002.gguf", "BF16/tiny-BF16-00001-of-00002.gguf"),
    ],
)
def test_a_tag_or_a_name_means_one(tag: str | None, file: str | None, first: str) -> None:
    assert choose("me/tiny", gguf_models(FILES), tag, file).files[0] == first


@pytest.mark.parametrize(
    ("tag", "file", "message"),
    [
        ("Q4_K", None, "has no GGUF model of quantization 'Q4_K' on the hub; it has tiny.IQ4_XS.gguf, "),
        (None, "other.gguf", "has no file 'other.gguf' on the hub"),
        (
            None,
            None,
            "has 4 GGUF models on the hub: .*; choose one as me/tiny:Q4_K_M, or with `quire pull me/tiny",
        ),
    ],
)
def test_what_there_is_is_told(tag: str | None, file: str | None, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        choose("me/tiny", gguf_models(FILES), tag, file)
    assert "\n" not in str(caught.value)


def test_two_of_the_same_tag_must_be_told_apart_by_name() -> None:
    models = gguf_models({"a-Q8_0.gguf": 1, "b-Q8_0.gguf": 2, "a-Q4_0.gguf": 1})
    with pytest.raises(SeveralModels, match="has 2 GGUF models called Q8_0") as caught:
        choose("me/tiny", models, "Q8_0", None)
    assert [model.files for model in caught.value.models] == [("a-Q8_0.gguf",), ("b-Q8_0.gguf",)]


def test_a_model_with_a_missing_part_is_refused() -> None:
    models = gguf_models({"a-00001-of-00003.gguf": 1, "a-00003-of-00003.gguf": 1})
    with pytest.raises(CheckpointError, match="has 2 of the 3 parts of a"):
        choose("me/tiny", models, None, None)


def test_many_names_are_not_all_shown() -> None:
    models = gguf_models({f"m-Q{number}_0.gguf": 1 for number in range(9)} | {"m-F16.gguf": 9})
    with pytest.raises(SeveralModels, match="and 2 more"):
        choose("me/tiny", models, None, None)


def test_a_vision_encoder_comes_in_16_bits_and_from_the_models_folder() -> None:
    names = ["mmproj-F32.gguf", "mmproj-tiny-BF16.gguf", "mmproj-F16.gguf", "large/tiny-mmproj-Q8_0.gguf", "mmproj.txt"]
    assert mmproj_beside("tiny-Q8_0.gguf", names) == "mmproj-F16.gguf"
    assert mmproj_beside("tiny-Q8_0.gguf", names[:2]) == "mmproj-tiny-BF16.gguf"
    assert mmproj_beside("tiny-Q8_0.gguf", names[:1]) == "mmproj-F32.gguf"
    assert mmproj_beside("large/tiny-Q8_0.gguf", names) == "large/tiny-mmproj-Q8_0.gguf"
    assert mmproj_beside("other/tiny-Q8_0.gguf", names) is None


def test_vision_encoders_are_told_by_their_names() -> None:
    assert is_beside("llava-v1.5-7b-mmproj-model-f16.gguf")
    assert is_beside("MMPROJ-F16.gguf")
    assert not is_beside("llava-v1.5-7b-Q4_K_M.gguf")
