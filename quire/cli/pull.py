"""`quire pull`: a model's files onto this machine, before they are needed."""

from typing import Annotated

from cyclopts import Parameter

from quire.cli.starting import status
from quire.config.sizes import decimal_size
from quire.engine.fetch import DEFAULT_MODEL, fetch, find_here

Model = Annotated[
    str, Parameter(help="A hub id such as meta-llama/Meta-Llama-3-8B, or smollm2 for SmolLM2-135M-Instruct.")
]
Revision = Annotated[str | None, Parameter(help="Branch, tag or commit of a hub id. Unset: its main branch.")]


def pull(model: Model = DEFAULT_MODEL, *, revision: Revision = None) -> int:
    """Download a model, or say where it lies when it is here already."""
    verb = "Checking" if find_here(model, revision) else "Downloading"
    with status(f"{verb} {model} …"):
        found = fetch(model, revision)
    how = "is here already" if found.was_here else "downloaded"
    print(f"{model} {how}: {found.path} ({decimal_size(found.size)})")
    return 0
