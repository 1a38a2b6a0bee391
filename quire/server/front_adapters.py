"""FrontAdapters: LoRA adapters that come and go while a server runs, on all of its fronts at once."""

from types import NoneType

from quire.core.adapter import AdapterRef
from quire.core.errors import InvalidRequest
from quire.lora.registry import AdapterRegistry
from quire.server.fronts.peer import Peer
from quire.serving.async_llm import AsyncLLM


class FrontAdapters:
    """Of one front. `hub` is where it reaches the others, if there are any."""

    def __init__(self, llm: AsyncLLM, hub: Peer | None) -> None:
        self._llm = llm
        self._hub = hub

    def registry(self) -> AdapterRegistry:
        """Raises an InvalidRequest where the server has no adapters."""
        if self._llm.adapters is None:
            raise InvalidRequest("the server was started without --enable-lora, and has no room for adapters")
        return self._llm.adapters

    async def loaded(self, ref: AdapterRef) -> None:
        """Let all fronts know an adapter."""
        if self._hub is not None:
            await self._hub.ask("adapter_loaded", NoneType, ref)

    async def unloaded(self, name: str) -> None:
        """Until no front takes requests for an adapter, and none has any left."""
        if self._hub is None:
            await self.forget(name)
        else:
            await self._hub.ask("adapter_unloaded", NoneType, name)

    async def forget(self, name: str) -> None:
        """This front's part of that."""
        ref = self.registry().unload(name)
        if ref is not None:
            await self._llm.unused(ref)
