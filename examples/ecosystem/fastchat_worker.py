"""FastChat: a worker that registers with its controller and hands requests on to quire, which batches them.

pip install fschat 'pydantic<2' 'fastapi<0.120'           # with pydantic 2, FastChat's OpenAI server cannot stream
python -m fastchat.serve.controller                       # port 21001
python examples/ecosystem/fastchat_worker.py              # port 21002; the server: QUIRE_BASE_URL, see endpoint.py
python -m fastchat.serve.openai_api_server --port 8080    # or fastchat.serve.gradio_web_server

FastChat writes prompts itself, by templates that it knows by name. The one here is ChatML, which the default model,
Qwen and many others speak; --conv-template names another, say llama-2 or mistral.
"""

import argparse
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import uvicorn
from endpoint import API_KEY, MODEL, URL
from fastchat.constants import ErrorCode
from fastchat.conversation import Conversation, SeparatorStyle, get_conv_template
from fastchat.serve.base_model_worker import BaseModelWorker, app

HEADERS = {"Authorization": f"Bearer {API_KEY}"}
SAME_NAME = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "repetition_penalty")
"""Parameters of FastChat's that quire calls the same; it sends null for those that it leaves open."""
LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
"""What there is a list of in the log probabilities of a completion, in FastChat's as in OpenAI's."""

CHATML = Conversation(
    name="chatml",
    system_template="<|im_start|>system\n{system_message}",
    system_message="You are a helpful assistant.",
    roles=("<|im_start|>user", "<|im_start|>assistant"),
    sep_style=SeparatorStyle.CHATML,
    sep="<|im_end|>",
    stop_str="<|im_end|>",
)


class QuireWorker(BaseModelWorker):
    """Registers, sends heartbeats and counts its requests as FastChat's own workers do; quire does the rest."""

    def __init__(self, controller: str, address: str, template: str | None, concurrency: int) -> None:
        super().__init__(controller, address, "quire", MODEL, [MODEL], concurrency, template)
        self._client = httpx.Client(base_url=URL, headers=HEADERS, timeout=60)
        self._streams = httpx.AsyncClient(base_url=URL, headers=HEADERS, timeout=None)
        [card] = [card for card in self._get("/v1/models")["data"] if card["id"] == MODEL]
        self.context_len = card["max_model_len"]
        self.init_heart_beat()

    def make_conv_template(self, conv_template: str | None = None, model_path: str | None = None) -> Conversation:
        return CHATML.copy() if conv_template is None else get_conv_template(conv_template)

    def count_token(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"count": self._post("/tokenize", {"prompt": params["prompt"]})["count"], "error_code": 0}

    def get_embeddings(self, params: dict[str, Any]) -> dict[str, Any]:
        answer = self._post("/v1/embeddings", {"model": MODEL, "input": params["input"]})
        vectors = [one["embedding"] for one in answer["data"]]
        return {"embedding": vectors, "token_num": answer["usage"]["prompt_tokens"]}

    def generate_gate(self, params: dict[str, Any]) -> dict[str, Any]:
        """The whole answer: what a stream says last."""
        said = Answer()
        with self._client.stream("POST", "/v1/completions", json=completion_body(params), timeout=None) as response:
            if response.is_error:
                return refusal(response.read())
            for line in response.iter_lines():
                said.add(line)
        return said.so_far()

    async def generate_stream_gate(self, params: dict[str, Any]) -> AsyncIterator[bytes]:
        """JSON objects with a zero byte after each; every one has all of the text so far."""
        said = Answer()
        async with self._streams.stream("POST", "/v1/completions", json=completion_body(params)) as response:
            if response.is_error:
                yield json.dumps(refusal(await response.aread())).encode() + b"\0"
                return
            async for line in response.aiter_lines():
                if said.add(line):
                    yield json.dumps(said.so_far()).encode() + b"\0"

    def _get(self, path: str) -> Any:
        return self._client.get(path).raise_for_status().json()

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._client.post(path, json=body).raise_for_status().json()


class Answer:
    """What a stream of a completion has said so far."""

    def __init__(self) -> None:
        self._text = ""
        self._usage: dict[str, int] = {}
        self._finish_reason: str | None = None
        self._logprobs: dict[str, list[Any]] | None = None

    def add(self, line: str) -> bool:
        """Take a line of the stream in; says whether the text may have grown."""
        if not line.startswith("data: {"):
            return False
        chunk = json.loads(line.removeprefix("data: "))
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk["choices"]:
            self._text += choice["text"]
            self._finish_reason = choice["finish_reason"] or self._finish_reason
            if choice.get("logprobs"):
                self._logprobs = self._logprobs or {name: [] for name in LISTS}
                for name in LISTS:
                    self._logprobs[name] += choice["logprobs"][name]
        return bool(chunk["choices"])

    def so_far(self) -> dict[str, Any]:
        counts = {name: self._usage.get(name, 0) for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
        return {
            "text": self._text,
            "error_code": 0,
            "usage": counts,
            "finish_reason": self._finish_reason,
            "logprobs": self._logprobs,
        }


def completion_body(params: dict[str, Any]) -> dict[str, Any]:
    """A request of FastChat's as a body of /v1/completions."""
    given = {name: params.get(name) for name in (*SAME_NAME, "stop", "stop_token_ids", "echo", "logprobs", "best_of")}
    return {
        "model": MODEL,
        "prompt": params["prompt"],
        "max_tokens": int(params.get("max_new_tokens", 256)),
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **{name: value for name, value in given.items() if value is not None},
    }


def refusal(body: bytes) -> dict[str, Any]:
    return {"text": json.loads(body)["error"]["message"], "error_code": int(ErrorCode.VALIDATION_TYPE_ERROR)}


def main() -> None:
    parser = argparse.ArgumentParser(description="A FastChat worker in front of a quire server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=21002)
    parser.add_argument(
        "--worker-address", help="where the controller finds this worker; http://HOST:PORT unless given"
    )
    parser.add_argument("--controller-address", default="http://127.0.0.1:21001")
    parser.add_argument("--conv-template", help="a template of FastChat's; ChatML unless given")
    parser.add_argument(
        "--limit-worker-concurrency", type=int, default=256, help="quire queues what is too much for it"
    )
    options = parser.parse_args()
    address = options.worker_address or f"http://{options.host}:{options.port}"
    QuireWorker(options.controller_address, address, options.conv_template, options.limit_worker_concurrency)
    uvicorn.run(app, host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
