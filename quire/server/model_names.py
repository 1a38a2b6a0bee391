"""ModelNames: what clients may call the model and its LoRA adapters, and which of them a key may use."""

from quire.config.server import ANY_NAME
from quire.core.adapter import AdapterRef
from quire.core.errors import CheckpointError, InvalidRequest
from quire.lora.registry import AdapterRegistry
from quire.server.caller import Caller
from quire.server.errors import UnknownModel

_NAMES_TOLD = 20
"""Names of adapters that an error lists."""


class ModelNames:
    """Of one model."""

    def __init__(self, names: tuple[str, ...], adapters: AdapterRegistry | None) -> None:
        """`names` are what clients may call the model, * among them any; the first is the model's own."""
        self.own = tuple(name for name in names if name != ANY_NAME)
        self._takes_any = ANY_NAME in names
        self._adapters = adapters

    def check(self, name: str | None, caller: Caller, *, takes_adapters: bool = True) -> str:
        """What the answer calls the model: as the client did. Raises UnknownModel unless it may; None is the one there
        is. Without `takes_adapters` the route answers by the model alone.
        """
        adapter = self.adapter(name)
        if name is not None and name not in self.own and adapter is None and not self._takes_any:
            raise UnknownModel(f"the model {name[:200]!r} does not exist here; {self._told()}.")
        if adapter is not None and not takes_adapters:
            raise InvalidRequest(
                f"{adapter.name!r} is an adapter, and this route answers by the model; ask for {self.own[0]!r}",
                field="model",
            )
        wanted = set(self.own) if adapter is None else {adapter.name}
        if caller.models is not None and not caller.models & wanted:
            refused = self.own[0] if adapter is None else adapter.name
            raise UnknownModel(f"this key may not use the model {refused!r}; ask for a key that may.")
        return self.own[0] if name is None else name

    def adapter(self, name: str | None) -> AdapterRef | None:
        """The LoRA adapter of that name; None where the name is the model's, or nobody's."""
        if self._adapters is None or name is None or name in self.own:
            return None
        try:
            return self._adapters.find(name)
        except CheckpointError as error:
            raise InvalidRequest(str(error), field="model") from None

    def _told(self) -> str:
        names = [] if self._adapters is None else self._adapters.names()
        if not names:
            return f"{self.own[0]!r} does"
        told = ", ".join(map(repr, names[:_NAMES_TOLD]))
        more = f" and {len(names) - _NAMES_TOLD} more" if len(names) > _NAMES_TOLD else ""
        return f"{self.own[0]!r} does, and the adapters {told}{more}"
