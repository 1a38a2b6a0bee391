"""WeightFormat: a way to quantize that a plugin adds: what its config means, which tensors it wrote, how they are read.

No torch here, nor in the module that a plugin's entry point names: headers are read before torch is there. `read`
imports what it needs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from quire.core.errors import PluginError
from quire.core.plugins import load_plugin
from quire.spec.quantization import StoredAs, WeightScheme

GROUP = "quire.formats"


class WeightFormat(ABC):
    """One row of the table of formats; its entry point is called as the config's `quant_method` is."""

    @abstractmethod
    def schemes(self, config: Mapping[str, Any], source: str) -> Callable[[str, bool], WeightScheme | None]:
        """From a quantization_config: how the weight of a Linear is stored, by its name and whether it is in a layer;
        None: plain. Each scheme has the entry point's name as its method. `source` names the file in errors."""

    @abstractmethod
    def tensors(self, scheme: WeightScheme, rows: int, columns: int) -> list[StoredAs]:
        """What a checkpoint holds for a weight of this shape."""

    @abstractmethod
    def read(self, scheme: WeightScheme, tensors: Mapping[str, Any], name: str) -> Any:
        """A `QuantizedMatrix` (quire.ops.quantized_matrix) of these tensors, by their endings; `name` is for errors."""


def format_plugin(name: str) -> WeightFormat | None:
    """The format of that name, where a plugin has it and may be used."""
    found = load_plugin(GROUP, name)
    if found is not None and not isinstance(found, WeightFormat):
        raise PluginError(f"the weight format {name!r} is {found!r}, and must be a WeightFormat.")
    return found


def required_format(name: str) -> WeightFormat:
    """The format of a scheme, which only whoever has the format can have made."""
    found = format_plugin(name)
    assert found is not None, f"nobody has the format {name}"
    return found
