"""How ops on recorded values become operations of the core: the column `tape` of the dispatch table."""

from typing import Any, cast

import torch
from torch import Tensor

from quire.core.pasts import Pasts
from quire.core.routing import Routing
from quire.ops.cpu.layouts import PANEL
from quire.ops.cpu.packed_heads import PackedUp
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.cpu.recording import CACHE_TYPES
from quire.ops.cpu.tape import ROWS, NotRecordable, TapeInput, Value
from quire.ops.head_norms import HeadNorms
from quire.ops.lora_tensors import AdapterRows, ExpertLora, LoraMatrix
from quire.ops.reference.gated_activation import CLAMPED_SWIGLU

ACTIVATIONS = {"silu": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3, CLAMPED_SWIGLU: 4}
SCORES = {"softmax": 0, "sigmoid": 1, "sparsemixer": 2}


def rms_norm(x: Value, weight: Tensor, eps: float, offset: float) -> Value:
    return _norm("rms_norm", x, {"weight": weight}, eps=eps, offset=offset)


def add_rms_norm(x: Value, added: Value, weight: Tensor, eps: float, offset: float) -> tuple[Value, Value]:
    total = x + added
    return total, rms_norm(total, weight, eps, offset)


def layer_norm(x: Value, weight: Tensor, bias: Tensor | None, eps: float) -> Value:
    if bias is None:
        return _norm("layer_norm", x, {"weight": weight}, eps=eps, bias=0)
    return _norm("layer_norm", x, {"weight": weight, "bias": bias}, eps=eps)


def add_layer_norm(x: Value, added: Value, weight: Tensor, bias: Tensor | None, eps: float) -> tuple[Value, Value]:
    total = x + added
    return total, layer_norm(total, weight, bias, eps)


def add_lora(y: Value, x: Value, matrix: LoraMatrix, rows: AdapterRows, bias: Tensor | None) -> Value:
    """In place: nothing may read the outputs as they were before."""
    if matrix.down.dtype not in (torch.float32, torch.bfloat16) or matrix.experts != 1:
        raise NotRecordable(f"adapters of {matrix.experts} experts in {matrix.down.dtype}")
    given: dict[str, Any] = {
        "adapters": x.tape.input(cast(TapeInput, rows.slots)),
        "page_bytes": matrix.down.stride(0) * matrix.down.itemsize,
        "is_brain": matrix.down.dtype == torch.bfloat16,
        "most_pages": matrix.pages.shape[1],
        "parts": list(matrix.parts),
        "columns": matrix.down.shape[3],
    }
    weights = {
        "down": matrix.down,
        "up": matrix.up,
        "pages": matrix.pages,
        "counts": matrix.counts,
        "is_dora": matrix.is_dora,
    }
    if bias is None:
        given["bias"] = 0
    else:
        weights["bias"] = bias
    x.tape.record("add_lora", (x, y), y, together=True, weights=weights, x=x, y=y, **given)
    return y


def activate(x: Value, activation: str) -> Value:
    return _gate(x, activation, x.width, gated=False)


def gated_activation(gate_up: Value, activation: str) -> Value:
    return _gate(gate_up, activation, gate_up.width // 2, gated=True)


def rotary(x: Value, cos: TapeInput, sin: TapeInput) -> Value:
    """In place: nothing may read the heads as they were before."""
    num_heads, head_dim = x.dims
    tape = x.tape
    tape.record(
        "rotate",
        (x,),
        x,
        heads=x,
        num_heads=num_heads,
        head_dim=head_dim,
        cos=tape.input(cos),
        sin=tape.input(sin),
        half=cos.width,
    )
    return x


def write_kv(
    key: Value, value: Value, keys: Tensor, values: Tensor, slots: TapeInput, scales: Tensor | None = None
) -> None:
    tape = key.tape
    cache = _cache(keys, values, scales)
    tape.record("write_kv", (key, value), value, key=key, value=value, cache=cache, slots=tape.input(slots))


def prepare_heads(
    heads: Value,
    num_kv_heads: int,
    norms: HeadNorms | None,
    angles: tuple[TapeInput, TapeInput] | None,
    keys: Tensor,
    values: Tensor,
    slots: TapeInput,
    scales: Tensor | None = None,
) -> Value:
    num_heads = heads.dims[0] - 2 * num_kv_heads
    query, key, value = heads.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    if norms is not None:
        query, key = _norm_heads(query, norms.query, norms), _norm_heads(key, norms.key, norms)
    if angles is not None:
        query, key = rotary(query, *angles), rotary(key, *angles)
    write_kv(key, value, keys, values, slots, scales)
    return query


def paged_attention(
    query: Value,
    keys: Tensor,
    values: Tensor,
    tables: TapeInput,
    query_starts: TapeInput,
    lengths: TapeInput,
    scale: float,
    window: int | None,
    softcap: float | None,
    scales: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk: int | None = None,
) -> Value:
    if sinks is not None and (sinks.dtype != torch.float32 or not sinks.is_contiguous()):
        raise NotRecordable(f"sinks of {sinks.dtype}")
    given: dict[str, Any] = {"sinks": 0} if sinks is None else {"weights": {"sinks": sinks}}
    given |= {"scale": scale, "window": window or 0, "chunk": chunk or 0, "softcap": softcap or 0.0}
    return _attend(query, query.dims[1], _cache(keys, values, scales), (tables, query_starts, lengths), given)


def prepare_latent(
    query: Value,
    compressed: Value,
    weight: Tensor,
    eps: float,
    angles: tuple[TapeInput, TapeInput],
    cache: Tensor,
    slots: TapeInput,
    scales: Tensor | None = None,
) -> tuple[Value, Value]:
    """In place: nothing may read the queries and latents as they were before."""
    tape, rotary_dim = query.tape, 2 * angles[0].width
    latent_dim = compressed.width - rotary_dim
    latent, _ = compressed.split((latent_dim, rotary_dim), dim=1)
    _norm("rms_norm", latent, {"weight": weight}, latent, eps=eps, offset=0.0)
    rotary(compressed.view(ROWS, 1, -1).from_column(latent_dim), *angles)
    rotary(query.from_column(query.dims[1] - rotary_dim), *angles)
    where = _latents(cache, scales)
    tape.record("write_latent", (compressed,), None, latent=compressed, cache=where, slots=tape.input(slots))
    return query, compressed


def latent_attention(
    query: Value,
    latents: Value,
    up: PackedUp,
    cache: Tensor,
    tables: TapeInput,
    query_starts: TapeInput,
    lengths: TapeInput,
    nope_dim: int,
    scale: float,
    scales: Tensor | None = None,
    pasts: Pasts | None = None,
) -> Value:
    """In absorbed form, whatever tokens look back at: keys and values made of latents would be rounded otherwise, and a
    prompt's tokens depend on how it is cut into chunks."""
    tape, (num_heads, head_dim) = query.tape, query.dims
    latent_dim, rotary_dim = up.keys.size, head_dim - nope_dim
    absorbed = tape.value(num_heads, latent_dim + rotary_dim)
    up.keys.record(query, absorbed)
    rotary_part, its_place = query.from_column(nope_dim), absorbed.from_column(latent_dim)
    tape.record(
        "copy_heads",
        (rotary_part,),
        its_place,
        from_=rotary_part,
        from_stride=head_dim,
        to=its_place,
        to_stride=absorbed.dims[1],
        num_heads=num_heads,
        columns=rotary_dim,
    )
    given = {"scale": scale, "window": 0, "chunk": 0, "softcap": 0.0, "sinks": 0}
    found = _attend(absorbed, latent_dim, _latents(cache, scales), (tables, query_starts, lengths), given)
    mixed = tape.value(num_heads, up.values.size)
    up.values.record(found, mixed)
    return mixed


def route_tokens(
    logits: Value,
    correction: Tensor | None,
    routing: Routing,
    counts: Tensor | None = None,
    counted: Tensor | None = None,
) -> tuple[Value, Value]:
    assert counts is None, "a program counts by itself"
    if routing.scores not in SCORES:
        raise NotRecordable(f"routing by {routing.scores}")
    tape = logits.tape
    ids, weights = tape.value(routing.top_k), tape.value(routing.top_k)
    given: dict[str, Any] = {"correction": 0} if correction is None else {"weights": {"correction": correction}}
    tape.record(
        "route",
        (logits, ids),
        weights,
        logits=logits,
        ids=ids,
        factors=weights,
        num_experts=logits.width,
        top_k=routing.top_k,
        scores=SCORES[routing.scores],
        renormalize=routing.renormalize,
        scale=routing.scale,
        nearness=routing.nearness,
        groups=routing.groups,
        top_groups=routing.top_groups,
        counted=1 if routing.group_score == "largest" else 2,
        **given,
    )
    return ids, weights


def experts_mlp(
    x: Value,
    ids: Value,
    weights: Value,
    up: PackedLinear,
    down: PackedLinear,
    activation: str,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    weighs_input: bool = False,
    lora: ExpertLora | None = None,
    some_elsewhere: bool = False,
) -> Value:
    """Packed matrices bring their biases themselves."""
    if some_elsewhere:
        raise NotRecordable("experts that are spread over ranks")
    if lora is not None:
        raise NotRecordable("adapters of experts")
    if activation not in ACTIVATIONS:
        raise NotRecordable(f"the activation {activation}")
    tape, size = x.tape, down.columns
    if size % PANEL or x.width % PANEL:
        raise NotRecordable(f"experts of {size} between rows of {x.width}, which are not whole panels of {PANEL}")
    given: dict[str, Any] = {"factors": weights, "top_k": ids.width, "weighs_input": weighs_input}
    tape.record(
        "experts",
        (x, ids, weights),
        None,
        together=True,
        stacks={"up": up.matrices, "down": down.matrices},
        x=x,
        ids=ids,
        hidden=x.width,
        size=size,
        activation=ACTIVATIONS[activation],
        **given,
    )
    result = tape.value(*x.dims)
    tape.record("sum_experts", (weights,), result, to=result, columns=x.width, **given)
    return result


def _norm_heads(heads: Value, weight: Tensor, norms: HeadNorms) -> Value:
    vectors = heads.view(ROWS, -1) if norms.span == "all" else heads
    if norms.kind == "layer":
        vectors = layer_norm(vectors, weight + norms.offset if norms.offset else weight, None, norms.eps)
    else:
        vectors = rms_norm(vectors, weight, norms.eps, norms.offset)
    return vectors.view(*heads.shape)


def _attend(
    query: Value,
    value_dim: int,
    cache: tuple[Tensor, Tensor],
    sequences: tuple[TapeInput, TapeInput, TapeInput],
    given: dict[str, Any],
) -> Value:
    """[heads, value_dim]; `sequences` are their tables, the first token of each, and their lengths."""
    tape, num_heads = query.tape, query.dims[0]
    result = tape.value(num_heads, value_dim)
    tables, starts, lengths = map(tape.input, sequences)
    count = tape.input(TapeInput("num_sequences"))
    given |= {"tables": tables, "starts": starts, "lengths": lengths, "count": count}
    given |= {"query": query, "to": result, "cache": cache, "heads": num_heads, "value_dim": value_dim}
    tape.record("attention", (query,), result, together=True, **given)
    return result


def _norm(name: str, x: Value, weights: dict[str, Tensor], to: Value | None = None, **given: Any) -> Value:
    """Of the vectors that `x` is cut into; the weight, and with it a bias, may be [heads, size], each head's own."""
    result, columns, weight = to or x.tape.value(*x.dims), x.dims[-1], weights["weight"]
    for each in weights.values():
        if each.dtype != torch.float32 or not each.is_contiguous():
            raise NotRecordable(f"a weight of {each.dtype}")
    if tuple(weight.shape) not in ((columns,), x.dims):
        raise NotRecordable(f"a norm with weights of {tuple(weight.shape)} on {x.shape}")
    given |= {"columns": columns, "count": x.width // columns, "weight_stride": 0 if weight.dim() == 1 else columns}
    x.tape.record(name, (x,), result, from_=x, to=result, weights=weights, **given)
    return result


def _gate(x: Value, activation: str, columns: int, *, gated: bool) -> Value:
    if activation not in ACTIVATIONS or (activation == CLAMPED_SWIGLU and not gated):
        raise NotRecordable(f"the activation {activation}")
    result = x.tape.value(columns)
    number = ACTIVATIONS[activation]
    x.tape.record("gate", (x,), result, from_=x, to=result, columns=columns, activation=number, gated=gated)
    return result


def _cache(keys: Tensor, values: Tensor, scales: Tensor | None) -> tuple[Tensor, Tensor]:
    assert scales is None, "scales are those of fp8, which the core does not store"
    known = str(keys.dtype).removeprefix("torch.") in CACHE_TYPES
    if not known or not keys.is_contiguous() or not values.is_contiguous():
        raise NotRecordable(f"a KV cache of {keys.dtype}")
    return keys, values


def _latents(cache: Tensor, scales: Tensor | None) -> tuple[Tensor, Tensor]:
    """Where keys and values lie is the same."""
    if cache.dtype == torch.int8:
        raise NotRecordable("latents in int8")
    return _cache(cache, cache, scales)
