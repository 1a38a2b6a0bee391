"""A client of any API: sends one ask in a given manner, reads the answer to its end, and hands it back comparable.

It knows the promised ways for a request to fail, and calls anything else wrong. Whether an answer is the right one is
judged elsewhere.
"""

import asyncio
import base64
import json
from dataclasses import dataclass
from typing import Any

import httpx
import websockets

from tests.soak.answer import comparable
from tests.soak.asks import COMPLETIONS, Ask
from tests.soak.outcome import CUT, DEADLINE, FULL, LEFT, OVERLOADED, UNAVAILABLE, WRONG, Ended
from tests.soak.streams import STREAMS, Chunks

_POLL = 0.5
_UNAVAILABLE_WORDS = "try again in about"


@dataclass(frozen=True, slots=True)
class Manner:
    """How a client behaves. All of it off: it is patient."""

    leave_after: int | None = None
    """Pieces of a stream after which it hangs up; of a whole answer, tenths of a second."""
    rest: float = 0.0
    """Seconds for which it does not read, after the first piece."""
    deadline: float | None = None


PATIENT = Manner()


class Client:
    """Of one server."""

    def __init__(self, url: str, headers: dict[str, str], *, keeps_alive: bool) -> None:
        self._url, self._headers = url, headers
        limits = httpx.Limits(max_keepalive_connections=2 if keeps_alive else 0)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=None, limits=limits)

    async def close(self) -> None:
        await self._http.aclose()

    async def perform(self, ask: Ask, manner: Manner = PATIENT) -> Any:
        """The comparable answer; raises `Ended` where there is none."""
        try:
            if ask.style in STREAMS:
                return await self._stream(ask, manner)
            others = {"socket": self._socket, "batch": self._batch, "stored": self._stored, "upload": self._upload}
            others |= {"sound": self._sound}
            if ask.style in others:
                return await others[ask.style](ask)
            return await self._whole(ask, manner)
        except (httpx.TransportError, OSError, websockets.WebSocketException, EOFError) as error:
            raise Ended(CUT, f"{type(error).__name__}: {error}") from error

    async def send_hostile(self, path: str, body: bytes) -> tuple[int, str]:
        """The status and the text of the answer."""
        try:
            answer = await self._http.post(path, content=body, headers={"Content-Type": "application/json"})
        except httpx.TransportError as error:
            raise Ended(CUT, f"{type(error).__name__}: {error}") from error
        return answer.status_code, answer.text

    async def _whole(self, ask: Ask, manner: Manner) -> Any:
        sending = self._http.post(ask.path, json=ask.body, headers=_deadline_headers(manner))
        if manner.leave_after is not None:
            try:
                async with asyncio.timeout(manner.leave_after / 10):
                    answer = await sending
            except TimeoutError:
                raise Ended(LEFT) from None
        else:
            answer = await sending
        return _told(answer)

    async def _stream(self, ask: Ask, manner: Manner) -> Any:
        stream = STREAMS[ask.style]()
        sending = self._http.stream("POST", ask.path, json=ask.body, headers=_deadline_headers(manner))
        async with sending as response:
            if response.status_code != 200:
                await response.aread()
                _raise_for(response)
            async for line in response.aiter_lines():
                stream.hear(line)
                if stream.pieces == 1 and manner.rest:
                    await asyncio.sleep(manner.rest)
                if manner.leave_after is not None and stream.pieces >= manner.leave_after:
                    raise Ended(LEFT)
        if stream.error is not None:
            _raise_for_event(stream.error)
        if stream.ends != 1:
            raise Ended(WRONG, f"the stream ended {stream.ends} times")
        return _unless_late(stream.answer())

    async def _socket(self, ask: Ask) -> Any:
        """Two generations over one socket, of which the second is cancelled."""
        url = self._url.replace("http", "ws", 1) + "/v1/stream"
        chunks, ends = Chunks(), list[tuple[str, str]]()
        async with websockets.connect(url, additional_headers=self._headers, max_size=None) as socket:
            for name in ("kept", "dropped"):
                body = ask.body | {"max_tokens": 4 * ask.body["max_tokens"]} if name == "dropped" else ask.body
                await socket.send(json.dumps({"type": "start", "id": name, "url": ask.path, "body": body}))
            await socket.send(json.dumps({"type": "cancel", "id": "dropped"}))
            while len(ends) < 2:
                frame = json.loads(await socket.recv())
                if frame["type"] == "event":
                    if frame["id"] == "kept":
                        chunks.take(frame["data"])
                else:
                    ends.append((frame["id"], frame["type"]))
                    if frame["type"] == "error" and frame["id"] == "kept":
                        _raise_for_event(frame["error"])
        if sorted(name for name, _ in ends) != ["dropped", "kept"] or ("kept", "done") not in ends:
            raise Ended(WRONG, f"generations of a socket ended as {ends}")
        if chunks.error is not None:
            _raise_for_event(chunks.error)
        return chunks.answer()

    async def _upload(self, ask: Ask) -> Any:
        """A file that goes up, comes down and is deleted."""
        sent = ask.body["content"].encode()
        file = await self._uploaded(sent)
        back = await self._until_answered("GET", f"/v1/files/{file}/content")
        await self._until_answered("DELETE", f"/v1/files/{file}")
        if back.content != sent:
            raise Ended(WRONG, f"a file of {len(sent)} bytes came back as {len(back.content)} others")
        return {"bytes": len(sent)}

    async def _uploaded(self, content: bytes) -> str:
        sending = {"files": {"file": ("lines.jsonl", content)}, "data": {"purpose": "batch"}}
        return str(_told(await self._http.post("/v1/files", **sending), comparing=False)["id"])  # type: ignore[arg-type]

    async def _batch(self, ask: Ask) -> Any:
        """Every line's answer by its name; a line that is answered twice, or not at all, is an error."""
        lines = ask.body["lines"]
        file = await self._uploaded("".join(json.dumps(line) + "\n" for line in lines).encode())
        wanted = {"input_file_id": file, "endpoint": COMPLETIONS, "completion_window": "24h"}
        batch = _told(await self._http.post("/v1/batches", json=wanted), comparing=False)
        while batch["status"] not in ("completed", "failed", "expired", "cancelled"):
            await asyncio.sleep(_POLL)
            batch = (await self._until_answered("GET", f"/v1/batches/{batch['id']}")).json()
        if batch["status"] != "completed":
            raise Ended(WRONG, f"a batch ended as {batch['status']}: {batch.get('errors')}")
        if batch["output_file_id"] is None:
            raise Ended(WRONG, f"a batch has no answers: {batch['request_counts']}, {await self._errors_of(batch)}")
        written = await self._until_answered("GET", f"/v1/files/{batch['output_file_id']}/content")
        answered = [json.loads(line) for line in written.text.splitlines()]
        if sorted(line["custom_id"] for line in answered) != sorted(line["custom_id"] for line in lines):
            names = [line["custom_id"] for line in answered]
            raise Ended(WRONG, f"a batch has answers for {names}; {await self._errors_of(batch)}")
        for each in (file, batch["output_file_id"]):
            await self._until_answered("DELETE", f"/v1/files/{each}")
        return {line["custom_id"]: comparable(line["response"]["body"]) for line in answered}

    async def _errors_of(self, batch: dict[str, Any]) -> str:
        if batch.get("error_file_id") is None:
            return "no errors are told"
        return (await self._until_answered("GET", f"/v1/files/{batch['error_file_id']}/content")).text[:600]

    async def _stored(self, ask: Ask) -> Any:
        """A response that is stored, read again, built on and deleted."""
        first = _told(await self._http.post(ask.path, json=ask.body), comparing=False)
        again = await self._until_answered("GET", f"{ask.path}/{first['id']}")
        if comparable(again.json()) != comparable(first):
            raise Ended(WRONG, "a stored response is another than the one that was sent")
        further = ask.body | {"previous_response_id": first["id"], "input": "Go on.", "store": False}
        second = _told(await self._http.post(ask.path, json=further), comparing=False)
        await self._until_answered("DELETE", f"{ask.path}/{first['id']}")
        second.pop("previous_response_id")
        return {"first": comparable(first), "second": comparable(second)}

    async def _sound(self, ask: Ask) -> Any:
        file = {"file": ("it.wav", base64.b64decode(ask.body["file"]))}
        return _told(await self._http.post(ask.path, data=ask.body["form"], files=file))

    async def _until_answered(self, method: str, path: str) -> httpx.Response:
        """What may be asked twice is asked again where a connection breaks or the server says to come back later."""
        lost = 0
        while True:
            try:
                answer = await self._http.request(method, path)
            except httpx.TransportError:
                lost += 1
                if lost > 20:
                    raise
                await asyncio.sleep(_POLL)
                continue
            if answer.status_code in (429, 503, 507):
                await asyncio.sleep(_POLL)
                continue
            if answer.status_code == 404 and lost and method == "DELETE":
                return answer  # it was deleted when the connection broke
            if answer.status_code != 200:
                raise Ended(WRONG, f"{method} {path}: {answer.status_code} {answer.text[:300]}")
            return answer


def _deadline_headers(manner: Manner) -> dict[str, str]:
    return {} if manner.deadline is None else {"X-Request-Deadline": f"{manner.deadline:.2f}"}


def _told(answer: httpx.Response, *, comparing: bool = True) -> Any:
    if answer.status_code != 200:
        _raise_for(answer)
    told = answer.json()
    return _unless_late(comparable(told)) if comparing else told


def _unless_late(answer: Any) -> Any:
    if "deadline" in _reasons(answer):
        raise Ended(DEADLINE)
    return answer


def _reasons(answer: Any) -> set[str]:
    if isinstance(answer, dict):
        own = {str(answer[name]) for name in ("finish_reason", "stop_reason", "done_reason") if name in answer}
        own |= {str(each) for each in answer.get("reason") or [] if isinstance(answer.get("reason"), list)}
        return own.union(*map(_reasons, answer.values())) if answer else own
    return set().union(*map(_reasons, answer)) if isinstance(answer, list) else set()


def _raise_for(answer: httpx.Response) -> None:
    """The promised kinds of errors, with the headers they must have; anything else is wrong."""
    later = int(answer.headers.get("retry-after", "0") or 0) >= 1
    kinds = {429: OVERLOADED, 503: UNAVAILABLE} if later else {}
    kinds |= {507: FULL, 408: DEADLINE}
    raise Ended(kinds.get(answer.status_code, WRONG), f"{answer.status_code} {answer.text[:400]}")


def _raise_for_event(error: Any) -> None:
    message = str(error.get("message", "")) if isinstance(error, dict) else str(error)
    code = error.get("code") if isinstance(error, dict) else None
    if code == "deadline_exceeded":
        raise Ended(DEADLINE, message)
    is_outage = _UNAVAILABLE_WORDS in message or code == "service_unavailable"
    raise Ended(UNAVAILABLE if is_outage else WRONG, str(error)[:400])
