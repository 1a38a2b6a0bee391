"""The fields of a body that ask for beam search, as vLLM names them; `n` is its width."""

import msgspec

from quire.core.beams import BeamOptions
from quire.core.errors import InvalidRequest
from quire.core.sampling_params import SamplingParams
from quire.protocol.openai.fields import Fields, refuse
from quire.protocol.openai.schema import Schema, flag, number

_PENALTY = 10.0
BEAM_FIELDS: dict[str, Schema] = {
    "use_beam_search": flag(description="The n most likely continuations that a search finds, best first."),
    "length_penalty": number(-_PENALTY, _PENALTY, description="Only with use_beam_search: above 1 prefers length."),
    "early_stopping": flag(description="Only with use_beam_search: end with n finished sequences."),
}
_KEPT = frozenset(
    {"n", "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "ignore_eos", "logprobs"}
    | {"detokenize", "skip_special_tokens", "shown_tokens", "priority", "deadline"}
    | {"cache_salt", "use_prefix_cache", "retain_prefix"}
)
"""Parameters that mean something to a search, or nothing where no token is drawn."""


def read_beams(body: Fields, params: SamplingParams) -> BeamOptions | None:
    """None where no search is asked for. Refuses what a search cannot do."""
    penalty = 1.0 if "length_penalty" not in body else body.get("length_penalty")
    if not isinstance(penalty, int | float) or isinstance(penalty, bool) or not -_PENALTY <= penalty <= _PENALTY:
        raise refuse("length_penalty", penalty, f"a number from {-_PENALTY:g} to {_PENALTY:g}")
    options = BeamOptions(float(penalty), body.flag("early_stopping"))
    if body.flag("use_beam_search"):
        check_searchable(params)
        return options
    if options != BeamOptions():
        name = "early_stopping" if options.early_stopping else "length_penalty"
        raise refuse(name, body.get(name), "left out unless use_beam_search is true")
    return None


def check_searchable(params: SamplingParams) -> None:
    """Raises an InvalidRequest for parameters that a beam search would have to ignore."""
    usual = SamplingParams()
    for name in params.__struct_fields__:
        if name not in _KEPT and getattr(params, name) != getattr(usual, name):
            value = msgspec.to_builtins(getattr(params, name))
            raise InvalidRequest(
                f"{name} is {value!r:.60}, and it is not supported with beam search; leave it out, or leave out "
                "use_beam_search",
                field=name,
            )
