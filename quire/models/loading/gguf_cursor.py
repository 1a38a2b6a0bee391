"""Reading a GGUF header value by value, each checked against the end of the file before it is touched."""

import struct
from dataclasses import dataclass, field
from mmap import mmap
from typing import NoReturn

from quire.core.errors import CheckpointError

BOOL, STRING, ARRAY = 7, 8, 9

# Value types with a fixed size, by GGUF's number. All little-endian.
_NUMBERS = {
    number: struct.Struct("<" + code)
    for number, code in zip((0, 1, 2, 3, 4, 5, 6, BOOL, 10, 11, 12), "BbHhIifBQqd", strict=True)
}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_DEEPEST_ARRAY = 4
_LONGEST_NAME = 256

Scalar = bool | int | float | str


@dataclass(slots=True)
class Cursor:
    """A place in a file's bytes that only moves forward and never past the end."""

    data: mmap | bytes
    source: str
    position: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.data)

    def fail(self, problem: str) -> NoReturn:
        raise CheckpointError(f"{self.source}: {problem} at byte {self.position:,}; the file is damaged or cut short.")

    def skip(self, count: int) -> int:
        """Move past `count` bytes; returns where they start."""
        start = self.position
        if count > self.size - start:
            self.fail(f"{count:,} bytes are announced where {self.size - start:,} remain")
        self.position = start + count
        return start

    def u32(self) -> int:
        return int(_U32.unpack_from(self.data, self.skip(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack_from(self.data, self.skip(8))[0])

    def count(self, what: str, smallest: int) -> int:
        """A number of things that take at least `smallest` bytes each, so it cannot exceed what remains."""
        count = self.u64()
        if count > (self.size - self.position) // smallest:
            self.fail(f"{count:,} {what} are announced, more than the file has room for")
        return count

    def text(self) -> str:
        """A string; bytes that are not UTF-8 become replacement characters, as some vocabularies contain them."""
        start = self.skip(self.u64())
        return self.data[start : self.position].decode("utf-8", errors="replace")

    def name(self) -> str:
        """A string that names something. Names stand in error messages, so a hostile one must not be long."""
        length = self.u64()
        if length > _LONGEST_NAME:
            self.fail(f"a name of {length:,} bytes is announced where {_LONGEST_NAME:,} are the most")
        start = self.skip(length)
        return self.data[start : self.position].decode("utf-8", errors="replace")

    def scalar(self, value_type: int) -> Scalar:
        """A value of any type but an array."""
        if value_type == STRING:
            return self.text()
        if value_type not in _NUMBERS:
            self.fail(f"value type {value_type} is unknown")
        number = _NUMBERS[value_type]
        value: int | float = number.unpack_from(self.data, self.skip(number.size))[0]
        if value_type != BOOL:
            return value
        if value not in (0, 1):
            self.fail(f"a truth value of {value}")
        return bool(value)

    def array_head(self) -> tuple[int, int]:
        """An array's element type and how many elements follow."""
        element_type = self.u32()
        if element_type in _NUMBERS:
            smallest = _NUMBERS[element_type].size
        elif element_type in (STRING, ARRAY):
            smallest = 8
        else:
            self.fail(f"array element type {element_type} is unknown")
        return element_type, self.count("array elements", smallest)

    def skip_elements(self, element_type: int, count: int, depth: int = 1) -> None:
        """Move past the elements of an array without reading them, as far as the format allows."""
        if element_type in _NUMBERS:
            self.skip(count * _NUMBERS[element_type].size)
        elif element_type == STRING:
            self._pass_strings(count)
        elif depth == _DEEPEST_ARRAY:
            self.fail(f"arrays are nested deeper than {_DEEPEST_ARRAY}")
        else:
            for _ in range(count):
                self.skip_elements(*self.array_head(), depth + 1)

    def elements(self, element_type: int, count: int) -> list[object]:
        """The elements of an array whose bytes `skip_elements` has been over before."""
        if element_type == ARRAY:
            return [self.elements(*self.array_head()) for _ in range(count)]
        if element_type == STRING:
            return self._strings(count)
        if element_type == BOOL:
            return [self.scalar(BOOL) for _ in range(count)]
        number = _NUMBERS[element_type]
        start = self.skip(count * number.size)
        return [value for (value,) in number.iter_unpack(self.data[start : self.position])]

    # A vocabulary has a hundred thousand strings, and a start waits for it: of what `skip` does for one, the next two
    # only read its length. Where that leads past the end, `skip` finds out and says where.

    def _pass_strings(self, count: int) -> None:
        unpack, data, end = _U64.unpack_from, self.data, self.position
        try:
            for _ in range(count):
                end += _U64.size + unpack(data, end)[0]
        except (struct.error, OverflowError):
            end = self.size + 1
        self._passed_strings(count, end)

    def _strings(self, count: int) -> list[object]:
        unpack, data, end = _U64.unpack_from, self.data, self.position
        found: list[object] = []
        try:
            for _ in range(count):
                start = end + _U64.size
                end = start + unpack(data, end)[0]
                found.append(data[start:end].decode("utf-8", errors="replace"))
        except (struct.error, OverflowError):
            end = self.size + 1
        self._passed_strings(count, end)
        return found

    def _passed_strings(self, count: int, end: int) -> None:
        if end > self.size:
            for _ in range(count):
                self.skip(self.u64())
        self.position = end
