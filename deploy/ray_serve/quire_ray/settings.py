"""Settings of the application: what a --config file of quire's has, and beside it how many replicas there are.

Whatever is wrong with them is one line that names the setting. Knows nothing of Ray's.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import yaml

from quire.cli.options import check_environment, drop_service_variables
from quire.cli.yaml_settings import flat_settings
from quire.config.engine import EngineConfig
from quire.config.fields import describe, field_sections, section_types
from quire.config.router import RouterConfig
from quire.core.errors import ConfigError
from quire.core.nearest import did_you_mean

DEPLOYMENTS = ("server", "prefill", "decode")
"""Whose replicas are scaled."""
_SOURCE = "args"
_GATEWAYS, _SCALING = "gateways", "scaling"
_OTHERWISE = {
    "host": "http_options.host of Serve's config says where its proxies listen",
    "port": "http_options.port of Serve's config says where its proxies listen",
    "uds": "Serve's proxies listen at http_options of its config",
    "ssl_certfile": "http_options.ssl_certfile of Serve's config is for its proxies",
    "ssl_keyfile": "http_options.ssl_keyfile of Serve's config is for its proxies",
    "root_path": "route_prefix of the application is that path",
    "api_server_count": f"{_GATEWAYS} says how many replicas clients are shared among",
    "nnodes": "distributed_executor_backend: ray spreads a model over nodes of the cluster",
    "node_rank": "distributed_executor_backend: ray spreads a model over nodes of the cluster",
    "role": f"{_SCALING} with prefill and decode gives replicas roles",
    "engines": f"{_SCALING} with prefill and decode gives engines replicas of their own",
    "engine_secret_file": "engines of the application share a secret that follows from member_key",
    "engine_ca_file": "engines of the application are in the cluster's own network",
    "members": "the members are the application's own servers",
    "members_file": "the members are the application's own servers",
    "members_dns": "the members are the application's own servers",
    "members_kubernetes": "the members are the application's own servers",
    "member_ca_file": "the members are in the cluster's own network",
    "shared_devices": "Ray gives each replica devices of its own",
    "shared_sleep_level": "Ray gives each replica devices of its own",
}
"""Settings of the command line that Serve has a word of its own for."""
_OF_THE_GATE = ("api_key", "keys", "allowed_origins", "allowed_hosts")
"""What the gateway asks of clients; servers are asked by the gateway alone."""
_OF_ROLES = ("prefill_engines", "decode_engines", "replicas", "data_parallel_size", "kv_transfer", "kv_carrier")
"""What has no meaning where engines have replicas of their own."""
_PREFIX = "QUIRE_"
_FIELDS = field_sections(EngineConfig)
_ROUTER_FIELDS = {each.name for each in fields(RouterConfig)}


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for."""

    server: dict[str, Any]
    """Of a server, by field name."""
    router: dict[str, Any]
    """Of a gateway."""
    scaling: dict[str, dict[str, Any]]
    """Serve's own fields of autoscaling, by deployment."""
    gateways: int

    @property
    def has_roles(self) -> bool:
        """Whether prompts and answers are computed by replicas of their own."""
        return "prefill" in self.scaling


def read_args(args: Mapping[str, Any], environment: Mapping[str, str]) -> Settings:
    """Raises ConfigError. A QUIRE_ variable counts where the setting is not in `args`, as with `quire serve`."""
    given = {str(name).replace("-", "_"): value for name, value in args.items()}
    gateways = _whole(given.pop(_GATEWAYS, 1), _GATEWAYS)
    scaling = _scaling(given.pop(_SCALING, {}))
    flat = flat_settings({name: _typed(name, value) for name, value in given.items()}, _SOURCE)
    for name in flat:
        if name in _OTHERWISE:
            raise ConfigError(f"{_SOURCE}: {name} is not for an application of Serve; {_OTHERWISE[name]}.")
    flat = _of_environment(environment) | flat
    flat.setdefault("member_key", secrets.token_hex(32))
    settings = Settings(
        {name: value for name, value in flat.items() if name in _FIELDS and name not in _OF_THE_GATE},
        {name: value for name, value in flat.items() if name in _ROUTER_FIELDS},
        scaling,
        gateways,
    )
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    """Everything that can be known before a replica starts."""
    EngineConfig.from_flat(**settings.server)
    RouterConfig(**settings.router)
    if settings.has_roles:
        for name in _OF_ROLES:
            if name in settings.server:
                raise ConfigError(
                    f"{_SOURCE}: {name} says how many engines a server has, but {_SCALING} has prefill and decode, "
                    f"whose replicas are the engines; leave {name} out."
                )


def _hint(name: str) -> Any:
    if name in _FIELDS:
        return get_type_hints(section_types(EngineConfig)[_FIELDS[name]])[name]
    return get_type_hints(RouterConfig).get(name)


def _typed(name: str, value: Any) -> Any:
    """`serve run app key=value` and variables give text alone; a setting that is none gets what the text says."""
    hint = _hint(name)
    if not isinstance(value, str) or hint is None or "text" in describe(hint) or "one of" in describe(hint):
        return value
    try:
        read = yaml.safe_load(value)
    except yaml.YAMLError:
        return value
    return read if isinstance(read, bool | int | float) else value


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The QUIRE_ variables; an image's own host and port are for `quire serve`."""
    kept = dict(environment)
    drop_service_variables(kept)
    check_environment(kept, [*_FIELDS, *_ROUTER_FIELDS])
    names = [name for name in (*_FIELDS, *sorted(_ROUTER_FIELDS - _FIELDS.keys())) if name not in _OTHERWISE]
    found = {name: kept[_PREFIX + name.upper()] for name in names if _PREFIX + name.upper() in kept}
    return flat_settings({name: _typed(name, value) for name, value in found.items()}, "the environment")


def _whole(value: Any, name: str) -> int:
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ConfigError(f"{_SOURCE}: {name} is {value!r}, but it must be a whole number from 1; leave it out for 1.")
    return number


def _scaling(value: Any) -> dict[str, dict[str, Any]]:
    """By deployment; whether the fields are right is Serve's to say."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise ConfigError(
                f"{_SOURCE}: {_SCALING} is {value[:60]!r}, but as text it must be JSON, as in "
                '{"server": {"max_replicas": 4}}.'
            ) from None
    if not isinstance(value, dict) or not all(isinstance(each, dict) for each in value.values()):
        raise ConfigError(
            f"{_SOURCE}: {_SCALING} is {str(value)[:60]!r}, but it must have fields of Serve's autoscaling for each of "
            f"{', '.join(DEPLOYMENTS)}, as in server: {{max_replicas: 4}}."
        )
    for name in value:
        if name not in DEPLOYMENTS:
            close = did_you_mean(str(name), DEPLOYMENTS)
            raise ConfigError(f"{_SOURCE}: {_SCALING} has an unknown deployment {str(name)[:60]!r}.{close}")
    if ("prefill" in value) != ("decode" in value):
        one, other = ("prefill", "decode") if "prefill" in value else ("decode", "prefill")
        raise ConfigError(
            f"{_SOURCE}: {_SCALING} has {one}, but not {other}; each needs the other, or leave out both for servers "
            "that do all."
        )
    return {"server": {}} | {str(name): dict(each) for name, each in value.items()}
