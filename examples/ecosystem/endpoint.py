"""Which quire server the examples of this folder talk to; needs nothing but Python.

QUIRE_BASE_URL   the server, with or without /v1         http://127.0.0.1:8000
QUIRE_MODEL      the name of the model                   the first that the server lists
QUIRE_API_KEY    the key, if the server wants one        none
"""

import json
import os
from urllib.request import Request, urlopen


def server_url(variable: str, otherwise: str) -> str:
    """The address that a variable holds, without the /v1 that some clients want and others add."""
    return os.environ.get(variable, otherwise).rstrip("/").removesuffix("/v1")


def first_model(url: str, key: str) -> str:
    """The first name that a server lists."""
    with urlopen(Request(f"{url}/v1/models", headers={"Authorization": f"Bearer {key}"}), timeout=30) as answer:
        name: str = json.load(answer)["data"][0]["id"]
    return name


API_KEY = os.environ.get("QUIRE_API_KEY", "none")
URL = server_url("QUIRE_BASE_URL", "http://127.0.0.1:8000")
MODEL = os.environ.get("QUIRE_MODEL") or first_model(URL, API_KEY)
