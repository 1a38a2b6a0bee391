"""`quire route`: one address for many instances."""

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from quire.cli.options import OBSERVE, ROUTER, ConfigFile, ObserveOptions, RouterOptions


def route(
    *,
    member: Annotated[
        list[str] | None,
        Parameter(negative=(), help="Address of an instance, as in http://10.0.0.5:8000; give it once for each."),
    ] = None,
    router: RouterOptions = ROUTER,
    observe: ObserveOptions = OBSERVE,
    config: ConfigFile = None,
) -> int:
    """Stand in front of several instances: `quire serve` on other hosts, or other servers with OpenAI's API.

    Requests go where their prefix is cached. When an instance of quire's dies, its answers go on at another one.
    """
    from quire.server.router.run import run_router

    members = ",".join([*router.listed(), *(member or ())])
    return run_router(replace(router, members=members or None), observe)
