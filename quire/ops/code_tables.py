"""What codes of three and four bits stand for where they are not whole numbers in order."""

IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""The sizes alone; those with a minus follow."""
_IQ2 = (1.0, 3.125, 5.375, 0.0)
"""An eighth of the magnitudes in codebooks of two bits, since the scales of groups are odd eighths; three are used."""
_IQ3_XXS = (1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.5)
"""A quarter of them likewise."""
_IQ3_S = (1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0)


def _with_signs(magnitudes: tuple[float, ...]) -> tuple[float, ...]:
    return (*magnitudes, *(-size for size in magnitudes))


TABLES: dict[str, tuple[float, ...]] = {
    "nf4": NF4,
    "iq4": IQ4,
    "iq3_xxs": _with_signs(_IQ3_XXS),
    "iq3_s": _with_signs(_IQ3_S),
    "iq2": _with_signs(_IQ2),
    "fp4": _with_signs(FP4),
}
"""By the codes of a QuantizedMatrix: bitsandbytes' NF4, ggml's IQ types of four, three and two bits, and MXFP4."""
