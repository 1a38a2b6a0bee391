"""AdapterLoads: requests wait outside every step until their LoRA adapter is on the device; all others go on."""

from concurrent.futures import Future, wait
from dataclasses import dataclass

from quire.core.adapter import AdapterRef
from quire.core.errors import InvalidRequest
from quire.core.request import Request
from quire.executor.base import Executor, HostedAdapter
from quire.executor.other_rank import RankLost
from quire.scheduler.adapter_room import AdapterRoom, Load


@dataclass(frozen=True, slots=True)
class _Asked:
    ref: AdapterRef
    fetched: "Future[HostedAdapter] | None"
    """Its way from disk to host memory; None: it was on the device when it was asked for."""
    ready: "Future[None]"


class AdapterLoads:
    """Of one engine: from disk to host memory, and on to the device when it has room."""

    def __init__(self, room: AdapterRoom | None, executor: Executor) -> None:
        self._room = room
        self._executor = executor
        self._asked: dict[str, _Asked] = {}
        """By request, until it may run."""
        self._granted: dict[str, tuple[Load, Future[HostedAdapter]]] = {}
        """By key: adapters that have room, until they are in host memory, which some may have left meanwhile."""
        self._placing: dict[str, Future[None]] = {}

    @property
    def room(self) -> AdapterRoom | None:
        return self._room

    def begin(self, request: Request) -> "Future[None] | None":
        """What a request has to wait for; None where its adapter is there, or it has none."""
        ref, room = request.prompt.adapter, self._room
        if ref is None:
            return None
        if room is None:
            raise InvalidRequest(
                f"the request wants adapter {ref.name!r}, but the engine was started without --enable-lora",
                field="model",
            )
        resident = room.find(ref.key)
        fetched = None if resident is not None else self._executor.fetch_adapter(ref)
        asked = _Asked(ref, fetched, Future())
        self._asked[request.id] = asked
        if resident is not None:
            room.ask(request.id, ref.key, len(resident.pages))
        self.advance()
        if not asked.ready.done():
            return asked.ready
        error = asked.ready.exception()
        if error is not None:
            raise InvalidRequest(str(error), field="model")
        return None

    def advance(self) -> None:
        """Begin what can be begun, and let those go whose adapter is there. Called before every step."""
        room = self._room
        if room is None or not (self._asked or self._granted or self._placing):
            return
        for request_id, asked in list(self._asked.items()):
            if asked.fetched is not None and asked.fetched.done() and not room.has_asked(request_id):
                self._fetched(room, request_id, asked, asked.fetched)
        for load in room.grant():
            ref = next(asked.ref for asked in self._asked.values() if asked.ref.key == load.key)
            self._granted[load.key] = (load, self._executor.fetch_adapter(ref))
        for key, (load, fetched) in [each for each in self._granted.items() if each[1][1].done()]:
            del self._granted[key]
            error = fetched.exception()
            if error is None:
                self._placing[key] = self._executor.place_adapter(fetched.result(), load.slot, load.pages)
            else:
                self._fail(room, key, error)
        for key, placing in [each for each in self._placing.items() if each[1].done()]:
            del self._placing[key]
            error = placing.exception()
            if error is None:
                room.loaded(key)
            else:
                self._fail(room, key, error)
        for request_id in [each for each in self._asked if room.is_granted(each)]:
            self._asked.pop(request_id).ready.set_result(None)

    def forget(self, request_id: str) -> None:
        """A request has ended, or was not taken."""
        if self._room is not None:
            self._asked.pop(request_id, None)
            self._room.leave(request_id)

    def forget_all(self) -> None:
        """The device has none from now on, and no request uses one. Copies that are under way end first: their pages
        are about to be another's, or nobody's."""
        if self._room is not None:
            wait(self._placing.values())
            self._placing.clear()
            self._granted.clear()
            self._room.forget_all()

    def _fetched(self, room: AdapterRoom, request_id: str, asked: _Asked, fetched: "Future[HostedAdapter]") -> None:
        error = fetched.exception()
        if error is not None:
            _check_ranks(error)
            self._asked.pop(request_id).ready.set_exception(error)
            return
        room.ask(request_id, asked.ref.key, fetched.result().num_pages)

    def _fail(self, room: AdapterRoom, key: str, error: BaseException) -> None:
        _check_ranks(error)
        room.failed(key)
        for request_id, asked in list(self._asked.items()):
            if asked.ref.key == key:
                del self._asked[request_id]
                asked.ready.set_exception(error)


def _check_ranks(error: BaseException) -> None:
    """A lost rank is no fault of an adapter's: the engine ends, and its requests go on in another."""
    if isinstance(error, RankLost):
        raise error
