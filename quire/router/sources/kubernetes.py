"""Members from Kubernetes: the pods behind a Service, as its EndpointSlices list them.

The API server is asked with the token that every pod has, which may change and is read each time. The account of the
pod needs `get` and `list` of `endpointslices` in `discovery.k8s.io`.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from quire.core.errors import ConfigError
from quire.router.http.address import member_address
from quire.router.http.answer import MemberLost
from quire.router.http.client import MemberClient
from quire.router.sources.source import Named, SourceFailed

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LONGEST = 16 * 2**20
_PATIENCE = 10.0


class KubernetesSource:
    """A Service in a namespace."""

    every = 2.0

    def __init__(
        self, place: str, environment: Mapping[str, str] = os.environ, account: Path = _ACCOUNT, scheme: str = "https"
    ) -> None:
        """`place` is NAMESPACE/SERVICE or NAMESPACE/SERVICE:PORT. Raises ConfigError outside of a cluster."""
        self.name = f"kubernetes {place}"
        namespace, _, service = place.partition("/")
        service, _, self._port = service.partition(":")
        self._target = (
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
            f"?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
        )
        host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise ConfigError(
                "--members-kubernetes needs the variables KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which "
                "every pod of a cluster has; run the router in one, or name the members otherwise."
            )
        self._account = account
        address = member_address(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}")
        ca_file = account / "ca.crt"
        self._client = MemberClient(address, _PATIENCE, str(ca_file) if ca_file.exists() else None)

    async def look(self) -> list[Named] | None:
        try:
            token = await asyncio.to_thread((self._account / "token").read_text, "ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceFailed(f"the pod has no token: {error}") from None
        headers = [(b"authorization", b"Bearer " + token.strip().encode()), (b"accept", b"application/json")]
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await self._client.ask("GET", self._target, headers)
                try:
                    said = await answer.whole(_LONGEST)
                finally:
                    answer.close()
        except (TimeoutError, MemberLost) as error:
            raise SourceFailed(f"the API server does not answer: {error or f'{_PATIENCE:g} s'}") from None
        if answer.status != 200:
            raise SourceFailed(f"the API server answers {answer.status}: {said[:200].decode(errors='replace')}")
        try:
            slices = _SLICES.decode(said)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SourceFailed(f"the API server's answer is no list of EndpointSlices: {error}") from None
        return list(dict.fromkeys(named for each in slices.items for named in self._members(each)))

    def _members(self, part: "_Slice") -> list[Named]:
        port = self._port_of(part)
        if port is None or part.address_type not in ("IPv4", "IPv6"):
            return []
        found = []
        for endpoint in part.endpoints or []:
            conditions = endpoint.conditions
            # a pod that is ending still serves what it has; it is left out only when it does not
            if conditions.serving is False or (conditions.ready is False and not conditions.terminating):
                continue
            for host in endpoint.addresses[:1]:
                url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
                found.append(Named(url, is_draining=bool(conditions.terminating)))
        return found

    def _port_of(self, part: "_Slice") -> int | None:
        """The port that was asked for, by number or name; else the first."""
        ports = part.ports or []
        if self._port.isdecimal():
            return int(self._port)
        if self._port:
            return next((each.port for each in ports if each.name == self._port), None)
        return ports[0].port if ports else None


class _Conditions(msgspec.Struct):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class _Endpoint(msgspec.Struct):
    addresses: list[str]
    conditions: _Conditions = msgspec.field(default_factory=_Conditions)


class _Port(msgspec.Struct):
    port: int | None = None
    name: str | None = None


class _Slice(msgspec.Struct):
    address_type: str = msgspec.field(name="addressType")
    endpoints: list[_Endpoint] | None = None
    ports: list[_Port] | None = None


class _Slices(msgspec.Struct):
    items: list[_Slice]
    metadata: dict[str, Any] = {}


_SLICES = msgspec.json.Decoder(_Slices)
