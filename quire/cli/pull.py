"""`quire pull`: a model's files onto this machine, before they are needed."""

from typing import Annotated

from cyclopts import Parameter

from quire.cli.starting import status
from quire.config.sizes import decimal_size
from quire.models.loading.fetch import DEFAULT_MODEL, SeveralModels, fetch, find_here

_SEVERAL = 2
"""The exit code if a file must be chosen first."""

Model = Annotated[
    str,
    Parameter(
        help="A hub id such as meta-llama/Meta-Llama-3-8B, with :Q4_K_M after it for one of several GGUF files, or "
        "smollm2 for SmolLM2-135M-Instruct."
    ),
]
Revision = Annotated[str | None, Parameter(help="Branch, tag or commit of a hub id. Unset: its main branch.")]
File = Annotated[str | None, Parameter(help="The GGUF file to take of several; its other parts come with it.")]


def pull(model: Model = DEFAULT_MODEL, *, revision: Revision = None, file: File = None) -> int:
    """Download a model, or say where it is if it is here already."""
    verb = "Checking" if find_here(model, revision, file) else "Downloading"
    try:
        with status(f"{verb} {model} …"):
            found = fetch(model, revision, file)
    except SeveralModels as several:
        _list(model.partition(":")[0], several)
        return _SEVERAL
    how = "is here already" if found.was_here else "downloaded"
    print(f"{model} {how}: {found.path} ({decimal_size(found.size)})")
    return 0


def _list(repo: str, several: SeveralModels) -> None:
    print(f"{repo} has {len(several.models)} GGUF models:")
    width = max(len(model.files[0]) for model in several.models)
    for model in several.models:
        parts = f", {model.num_parts} parts" if model.num_parts > 1 else ""
        print(f"  {model.files[0]:<{width}}  {decimal_size(model.size)}{parts}")
    tags = [model.tag for model in several.models if model.tag is not None]
    # two files of the same quantization are told apart by their names alone
    example = next((tag for tag in tags if tags.count(tag) == 1), None)
    by_tag = "" if example is None else f"`quire pull {repo}:{example}`, or "
    print(f"Choose one: {by_tag}`quire pull {repo} --file {several.models[0].files[0]}`.")
