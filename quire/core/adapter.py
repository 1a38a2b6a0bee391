"""A LoRA adapter as requests name it: everything that an engine needs to find and recognise it."""

from dataclasses import dataclass

import msgspec


class AdapterRef(msgspec.Struct, frozen=True, array_like=True):
    """Travels with every request that uses it, so an engine that takes a request over needs to know nothing before."""

    name: str
    path: str
    """Its folder, on the hosts of all engines."""
    version: str
    """Changes with the adapter's files: another adapter under the same name shares no KV with this one."""

    @property
    def key(self) -> str:
        """Two adapters with the same key are the same."""
        return f"{self.name}\0{self.version}"

    @staticmethod
    def name_in(key: str) -> str:
        """The name of the adapter with that key."""
        return key.partition("\0")[0]


@dataclass(frozen=True, slots=True)
class LoRARequest:
    """An adapter for `LLM.generate`, as vLLM's users write it."""

    lora_name: str
    """What requests call it."""
    lora_int_id: int
    """Taken for compatibility: adapters are told apart by name and content."""
    lora_path: str
    """A folder in peft's format, or a hub id."""
