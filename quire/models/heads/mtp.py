"""MTP: the layer behind the last that DeepSeek V3, GLM-4.5 and their like keep from training (multi-token prediction).
Words and the matrix of logits are the large model's; the rest lies in the same files."""

from dataclasses import replace

from quire.core.errors import CheckpointError
from quire.spec.draft_head import DraftHeadSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ModelSpec


def describe_mtp(large: ModelSpec, source: str) -> ModelSpec:
    layer, last = large.mtp_layer, large.norm
    if layer is None or last is None:
        raise CheckpointError(
            f"{source} is a {large.architecture} without a layer that drafts (num_nextn_predict_layers); quire runs "
            "those of DeepSeek V3 and GLM-4.5. Use another method."
        )
    start, hidden = f"model.layers.{large.num_layers}.", large.hidden_size
    word_norm, feature_norm, norm = (
        replace(last, name=start + name, role=role, layer=large.num_layers)
        for name, role in (("enorm", "word_norm"), ("hnorm", "feature_norm"), ("shared_head.norm", "output_norm"))
    )
    fuse = MatrixSpec((Part(f"{start}eh_proj", "fuse", hidden),), 2 * hidden, "none", layer=large.num_layers)
    return replace(
        large,
        layers=(layer,),
        norm=norm,
        head=None,
        tied=False,
        mtp_layer=None,
        vision=None,
        unused=(r".*",),
        draft_head=DraftHeadSpec("mtp", fuse, word_norm, feature_norm),
    )
