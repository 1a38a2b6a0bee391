"""Typed reading of a GGUF file's metadata: each value is checked before anyone computes with it."""

import struct

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_header import GGUFArray, GGUFHeader, Value

_LONGEST_ARCHITECTURE = 64
_MOST_LAYERS = 10_000
_MOST_OTHERWISE = 10**9
_MOST = {"block_count": _MOST_LAYERS, "vision.block_count": _MOST_LAYERS}
_MOST_NUMBERS = 1024
"""Of an array that is a setting."""
_LARGEST_NUMBER = 1e30
_FLOAT32 = struct.Struct("<f")


class GGUFMetadata:
    """Values by the name that follows the architecture's: `block_count` for `llama.block_count`."""

    def __init__(self, header: GGUFHeader) -> None:
        self.source = str(header.path)
        self._values = header.metadata
        architecture = header.metadata.get("general.architecture")
        if not isinstance(architecture, str) or len(architecture) > _LONGEST_ARCHITECTURE:
            raise CheckpointError(f"{self.source} does not give general.architecture; convert the model again.")
        self.architecture = architecture

    def get(self, name: str) -> Value | None:
        return self._values.get(f"{self.architecture}.{name}")

    def size(self, name: str) -> int:
        """A whole number above 0."""
        value = self.size_or_none(name)
        if value is None:
            key = f"{self.architecture}.{name}"
            raise CheckpointError(f"{self.source} does not give {key}, which quire needs; convert the model again.")
        return value

    def size_or_none(self, name: str, least: int = 1) -> int | None:
        value = self.get(name)
        return None if value is None else self._checked(name, value, least)

    def largest(self, name: str) -> int | None:
        """A size that may be given once or layer by layer; of layers that differ, the largest."""
        value = self.get(name)
        if not isinstance(value, GGUFArray):
            return self.size_or_none(name)
        sizes = [size for size in self._by_layer(name, value) if isinstance(size, int)]
        return self._checked(name, max(sizes, default=0), 1)

    def flags_by_layer(self, name: str, num_layers: int) -> list[bool] | None:
        """One truth value a layer; None when there is no array."""
        value = self.get(name)
        if not isinstance(value, GGUFArray):
            return None
        flags = value.read() if value.count == num_layers else []
        if not flags or not all(isinstance(flag, int) for flag in flags):
            raise self._wrong(name, value, f"{num_layers} truth values, one a layer")
        return [bool(flag) for flag in flags]

    def number_or_none(self, name: str) -> float | None:
        """A number above 0, as the decimal that it was before it was rounded to float32."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < _LARGEST_NUMBER:
            raise self._wrong(name, value, "a number above 0")
        return _decimal(float(value))

    def numbers_or_none(self, name: str, count: int) -> list[float] | None:
        """So many numbers, as the decimals that they were."""
        value = self.get(name)
        if value is None:
            return None
        numbers = value.read() if isinstance(value, GGUFArray) and value.count == count else []
        found = [number for number in numbers if isinstance(number, int | float) and abs(number) < _LARGEST_NUMBER]
        if len(found) != count:
            raise self._wrong(name, value, f"{count} numbers")
        return [_decimal(float(number)) for number in found]

    def sizes_or_none(self, name: str) -> list[int] | None:
        """Whole numbers from 0 on."""
        value = self.get(name)
        if value is None:
            return None
        numbers = value.read() if isinstance(value, GGUFArray) and value.count <= _MOST_NUMBERS else []
        if not numbers:
            raise self._wrong(name, value, f"an array of 1 to {_MOST_NUMBERS:,} whole numbers")
        return [self._checked(name, number, 0) for number in numbers]

    def flag(self, name: str, otherwise: bool) -> bool:
        value = self.get(name)
        if value is None:
            return otherwise
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def text_or_none(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, value, "text")
        return value

    def token_or_none(self, role: str, vocab_size: int) -> int | None:
        """A special token; ids outside the vocabulary, which some files use to say there is none, are none."""
        value = self._values.get(f"tokenizer.ggml.{role}_token_id")
        if isinstance(value, bool) or not isinstance(value, int):
            return None
        return value if 0 <= value < vocab_size else None

    def num_tokens(self) -> int:
        """How many tokens the file's own vocabulary has; 0 without one."""
        tokens = self._values.get("tokenizer.ggml.tokens")
        return tokens.count if isinstance(tokens, GGUFArray) else 0

    def _by_layer(self, name: str, value: GGUFArray) -> list[object]:
        if value.count > _MOST_LAYERS:
            raise self._wrong(name, value, f"at most {_MOST_LAYERS:,} values, one a layer")
        return value.read()

    def _checked(self, name: str, value: object, least: int) -> int:
        most = _MOST.get(name, _MOST_OTHERWISE)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(name, value, f"from {least} to {most:,}")
        return value

    def _wrong(self, name: str, value: object, allowed: str) -> CheckpointError:
        shown = f"an array of {value.count:,}" if isinstance(value, GGUFArray) else repr(value)[:40]
        return CheckpointError(f"{self.source} gives {self.architecture}.{name} as {shown}, but it must be {allowed}.")


def _decimal(value: float) -> float:
    """The shortest decimal that float32 rounds to `value`: 1e-05 for 9.999999747378752e-06."""
    stored = _FLOAT32.pack(value)
    if _FLOAT32.unpack(stored)[0] != value:
        return value
    guesses = (float(f"{value:.{digits}g}") for digits in range(1, 9))
    return next((guess for guess in guesses if _FLOAT32.pack(guess) == stored), value)
