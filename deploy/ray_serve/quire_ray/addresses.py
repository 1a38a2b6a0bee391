"""Where the replicas of a deployment listen: each is asked by Serve's handle, which knows those that run."""

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from quire.router.sources.source import Named, SourceFailed

_PATIENCE = 10.0


async def addresses_of(replicas: DeploymentHandle) -> list[str]:
    """Of all that run; raises SourceFailed where they cannot be asked. A replica that is being stopped is none."""
    asked = replicas.broadcast("address")
    try:
        found = await asked.results_async(timeout_s=_PATIENCE, return_exceptions=True)
    except (RayError, RayServeException, TimeoutError) as error:
        raise SourceFailed(f"Serve does not say which replicas there are: {error or 'one does not answer'}") from None
    return sorted(each for each in found if isinstance(each, str))


class ReplicaSource:
    """The members of a gateway's router: the servers of its application."""

    name = "ray serve"
    every = 1.0

    def __init__(self, servers: DeploymentHandle) -> None:
        self._servers = servers

    async def look(self) -> list[Named] | None:
        return [Named(url) for url in await addresses_of(self._servers)]
