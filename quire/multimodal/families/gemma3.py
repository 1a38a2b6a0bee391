"""Gemma 3: one picture of one size, with line breaks around it."""

from quire.core.errors import CheckpointError
from quire.multimodal.families.llava import fixed_recipe
from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.settings import BILINEAR, HALF, SCALED

_GEMMA3 = {
    **SCALED,
    "size": {"height": 224, "width": 224},
    "resample": BILINEAR,
    "image_mean": HALF,
    "image_std": HALF,
}
_BEGIN, _END = "<start_of_image>", "<end_of_image>"


def gemma3(files: ProcessorFiles) -> Processors:
    settings = files.image.over(_GEMMA3)
    if settings.flag("do_pan_and_scan"):
        raise CheckpointError(
            f"{settings.source} cuts long images into parts (do_pan_and_scan), which quire does not; set it to false."
        )
    count = int(files.config.get("mm_tokens_per_image") or 256)
    token, marker = files.token("image_token_index", "image_token_id"), files.token("boi_token_index", "boi_token_id")
    pieces: list[Piece] = [f"\n\n{_BEGIN}", count, f"{_END}\n\n"]
    return {
        "image": MediaProcessor(
            fixed_recipe(settings), *settings.scaling(), token, marker, lambda cooked: pieces, _BEGIN
        )
    }
