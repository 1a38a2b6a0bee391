"""Bounds on JSON whose shape is the client's own, such as variables of a chat template."""

from quire.protocol.openai.fields import refuse

DEEPEST = 16
MOST_VALUES = 10_000
_LARGEST = (1 << 63) - 1


def check_free_form(field: str, given: object, *, most: int = MOST_VALUES, deepest: int = DEEPEST) -> None:
    """Refuses what is nested too deep, has too many values, or holds a number that no other program could read."""
    count, level = 0, [given]
    for depth in range(deepest + 1):
        if not level:
            return
        if depth == deepest and any(isinstance(value, dict | list) for value in level):
            break
        count += len(level)
        if count > most:
            raise refuse(field, f"{count} values and more", f"at most {most} values altogether")
        for value in level:
            if isinstance(value, int) and abs(value) > _LARGEST:
                raise refuse(field, value, "made of numbers that fit 64 bits")
        level = [inner for value in level for inner in _inside(value)]
    else:
        return
    raise refuse(field, "nested deeper", f"nested at most {deepest} deep")


def _inside(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
