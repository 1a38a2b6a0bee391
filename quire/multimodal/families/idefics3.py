"""Idefics 3 and SmolVLM: tiles with the names of their places, and the whole image behind them."""

from quire.multimodal.processor import MediaProcessor, Piece, ProcessorFiles, Processors
from quire.multimodal.recipes import Cooked, Split
from quire.multimodal.settings import HALF, LANCZOS, SCALED

_IDEFICS3 = {
    **SCALED,
    "size": {"longest_edge": 4 * 364},
    "max_image_size": {"longest_edge": 364},
    "do_image_splitting": True,
    "resample": LANCZOS,
    "image_mean": HALF,
    "image_std": HALF,
}
_AROUND = "<fake_token_around_image>"


def idefics3(files: ProcessorFiles) -> Processors:
    settings = files.image.over(_IDEFICS3)
    tile = settings.sides("max_image_size")[0]
    recipe = Split(settings.sides("size")[0], tile, settings.flag("do_image_splitting"), settings.filter)
    tower = files.tower.over({"patch_size": 32})
    each = (tile // tower.number("patch_size") // int(files.config.get("scale_factor") or 2)) ** 2
    token = files.token("image_token_id")

    def pieces(cooked: Cooked) -> list[Piece]:
        rows, columns = cooked.tiles
        found: list[Piece] = []
        for row in range(rows):
            for column in range(columns):
                found += [f"{_AROUND}<row_{row + 1}_col_{column + 1}>", each]
            found.append("\n")
        before = f"\n{_AROUND}" if found else _AROUND
        if found:  # two line breaks are one token
            before = f"{found.pop()}{before}"
        return [*found, f"{before}<global-img>", each, _AROUND]

    return {"image": MediaProcessor(recipe, *settings.scaling(), token, token, pieces, "<image>")}
