"""CLIP and SigLIP as models that embed: an image is a prompt of one token."""

from quire.multimodal.families.llava import CLIP, SIGLIP, fixed_recipe
from quire.multimodal.processor import IMAGE_ALONE, MediaProcessor, ProcessorFiles, Processors


def clip(files: ProcessorFiles) -> Processors:
    settings = files.image.over(SIGLIP if files.config.get("model_type") == "siglip" else CLIP)
    recipe, scaling = fixed_recipe(settings), settings.scaling()
    return {"image": MediaProcessor(recipe, *scaling, IMAGE_ALONE, IMAGE_ALONE, lambda cooked: [1], "")}
