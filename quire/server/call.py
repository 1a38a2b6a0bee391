"""Call: a body as the engine runs it and as its client reads the answer. Every API ends here."""

from dataclasses import dataclass, field
from typing import Literal

from quire.core.beams import BeamOptions
from quire.core.errors import InvalidRequest
from quire.core.media import MediaItem
from quire.core.sampling_params import SamplingParams
from quire.protocol.ignored import Ignored
from quire.protocol.writer import Writer
from quire.server.ignored import ignored_header
from quire.serving.validated import SchemaCheck


@dataclass(frozen=True, slots=True)
class Call:
    """What a body asks for, ready to run."""

    endpoint: str
    """The route, such as /v1/chat/completions."""
    prompts: list[list[int]]
    texts: list[str | None]
    """Each prompt as text, where it came as text."""
    params: SamplingParams
    structured_field: str
    """The body's own name for what the engine calls structured."""
    stream: bool
    writer: Writer
    beams: BeamOptions | None = None
    """Search for the most likely sequences instead of drawing tokens."""
    framing: Literal["events", "lines"] = "events"
    """How a stream is cut into messages: server-sent events, or a line of JSON each."""
    schema: SchemaCheck | None = None
    """What finished texts are validated by, where their grammar holds only a part of it."""
    media: list[tuple[MediaItem, ...]] = field(default_factory=list)
    """What the placeholder tokens of each prompt stand for; empty where none has any."""
    model: str | None = None
    """What the body calls the model: an adapter's name, or one of the model's own."""
    ignored: Ignored = field(default_factory=Ignored)
    """What of the body changes nothing."""

    def headers(self) -> dict[str, str]:
        """What of the body changes nothing, and what of its schema no grammar holds."""
        return ignored_header(self.ignored) | ({} if self.schema is None else self.schema.header())


def check_logprobs(call: Call, most: int) -> None:
    """Raise an InvalidRequest where more of them are asked for at a token than the server gives."""
    listed = "logprobs" if call.endpoint == "/v1/completions" else "top_logprobs"
    params = call.params
    asked = {listed: params.logprobs, "prompt_logprobs": params.prompt_logprobs}
    asked["logprob_token_ids"] = len(params.logprob_token_ids or ())
    for name, count in asked.items():
        if (count or 0) > most:
            raise InvalidRequest(
                f"{name} asks for {count}, and this server gives at most {most} (--max-logprobs); ask for fewer",
                field=name,
            )
