"""`quire key`: a new API key, shown once, and its entry for the keys file."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from quire.server.gate.new_key import append_entry, new_key

Name = Annotated[str, Parameter(help="Whose key it is: its name in logs, metrics and the fair schedule.")]
Append = Annotated[Path | None, Parameter(help="Keys file to add the entry to; it is created if it is missing.")]
PerMinute = Annotated[int | None, Parameter(help="Requests a minute. Unset: no limit.")]
Tokens = Annotated[int | None, Parameter(help="Tokens a minute, prompts and answers together. Unset: no limit.")]
Concurrency = Annotated[int | None, Parameter(help="Requests at once. Unset: no limit.")]
Priority = Annotated[int | None, Parameter(help="Priority of its requests. Unset: what each asks for.")]
Models = Annotated[str | None, Parameter(help="Models it may use, separated by commas. Unset: all.")]
Weight = Annotated[float | None, Parameter(help="Its share of a fair schedule beside other keys'. Unset: 1.")]
Salt = Annotated[Literal["own", "shared"], Parameter(help="Whether its cached prefixes are for it alone.")]
Admin = Annotated[bool, Parameter(help="Let it use /debug.")]


def key(
    name: Name,
    *,
    append: Append = None,
    requests_per_minute: PerMinute = None,
    tokens_per_minute: Tokens = None,
    concurrency: Concurrency = None,
    priority: Priority = None,
    models: Models = None,
    weight: Weight = None,
    cache_salt: Salt = "own",
    admin: Admin = False,
) -> int:
    """Make an API key. Only its hash is kept, in the entry; the key is shown now and never again."""
    made = new_key(
        name,
        {
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
            "concurrency": concurrency,
            "priority": priority,
            "models": [model.strip() for model in models.split(",")] if models is not None else None,
            "weight": weight,
            "cache_salt": cache_salt if cache_salt == "shared" else None,
            "admin": admin or None,
        },
    )
    if append is not None:
        append_entry(append.expanduser(), made.entry)
    print(f"The key of {name}, shown this once:\n\n  {made.secret}\n")
    if append is None:
        print("Its entry for the keys file:\n\n" + "".join(f"  {line}\n" for line in made.entry.splitlines()))
    else:
        print(f"Added to {append}; `kill -HUP` makes a running server read it.")
    return 0
