"""Which model a server offers first, from its /v1/models; says what is wrong where there is none."""

import msgspec

from quire.bench.gauges import Page
from quire.bench.http.client import Client
from quire.bench.http.connection import BrokenAnswer
from quire.core.errors import QuireError

_LONGEST_SAID = 200


class _Listed(msgspec.Struct):
    id: str = ""


class _Models(msgspec.Struct):
    data: list[_Listed] = []


async def first_model(client: Client, url: str) -> str:
    """Raises a QuireError where nobody answers, or nothing that names a model."""
    page = Page()
    try:
        await client.get("/v1/models", page)
    except (OSError, BrokenAnswer) as error:
        raise QuireError(f"no server answers at {url}: {error}; start it first, or give another --url.") from error
    try:
        names = [model.id for model in msgspec.json.decode(page.content, type=_Models).data if model.id]
    except (msgspec.DecodeError, UnicodeDecodeError):
        names = []
    if page.status == 200 and names:
        return names[0]
    wants_key = page.status in (401, 403)
    said = page.content[:_LONGEST_SAID].decode(errors="replace")
    raise QuireError(
        f"{url}/v1/models answered {page.status} and named no model; give --model"
        f"{' and --api-key' if wants_key else ', or another --url'}. It said: {said or 'nothing'}"
    )
