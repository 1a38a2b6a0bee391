"""A memory plan as tables for people and as JSON for programs."""

import json
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from quire.cli.planning import MemoryPlan
from quire.config.facts import ModelFacts
from quire.config.sizes import binary_size, decimal_size
from quire.observe.choices import choices_table

_SHAPE = (
    *("architecture", "num_layers", "hidden_size", "num_heads", "num_kv_heads", "head_dim", "vocab_size"),
    *("max_position", "max_position_source", "windows"),
)
"""What the JSON form tells of a model's spec."""


def print_plan(plan: MemoryPlan) -> None:
    """Print the plan to the terminal."""
    console = Console(highlight=False)
    console.print(Text.assemble((plan.model.name, "bold"), f": {_model_line(plan)}"), soft_wrap=True)
    console.print(_memory_table(plan))
    if plan.read_bytes:
        console.print(_reads_table(plan))
    console.print(_kv_table(plan))
    if plan.resolved is None:
        console.print(Text(plan.problem[:1].upper() + plan.problem[1:], style="bold red"), soft_wrap=True)
        console.print(_remedies_table(plan))
    else:
        console.print(choices_table(plan.resolved.choices))


def plan_as_json(plan: MemoryPlan) -> str:
    """The plan as one JSON object; sizes are in bytes."""
    computed = ("fits", "num_blocks", "num_tokens", "sequences_in_memory", "sequences_at_once")
    budget = {name: getattr(plan.budget, name) for name in ("share", "spent", "kv")}
    model, parts = plan.model, {field.name: getattr(plan, field.name) for field in fields(plan)}
    values: dict[str, Any] = {
        name: asdict(part) if is_dataclass(part) and not isinstance(part, type) else part
        for name, part in parts.items()
        if name != "model"
    }
    values |= {name: getattr(plan, name) for name in computed}
    values["remedies"] = [asdict(remedy) for remedy in plan.remedies]
    values["model"] = {name: getattr(model.spec, name) for name in _SHAPE} | {
        name: getattr(model, name) for name in ("name", "dtype", "num_parameters", "weight_bytes")
    }
    values["budget"] |= budget
    return json.dumps(values, indent=2)


def _model_line(plan: MemoryPlan) -> str:
    model = plan.model
    parts = [
        model.spec.architecture,
        _parameters(model),
        f"{model.spec.num_layers} layers",
        f"{model.spec.caches[0]}",
        f"context {model.spec.max_position:,}",
    ]
    attentions = [layer.attention for layer in model.spec.layers]
    windows = sum(each.window is not None for each in attentions)
    chunks = sum(each.chunk is not None for each in attentions)
    parts += [f"{windows} layers with a sliding window"] * bool(windows)
    parts += [f"{chunks} layers with chunked attention"] * bool(chunks)
    return ", ".join(parts)


def _parameters(model: ModelFacts) -> str:
    total = f"{model.num_parameters / 1e9:.2f} B parameters"
    active = f" ({model.num_active_parameters / 1e9:.2f} B active)"
    return total + active * model.spec.has_experts


def _table(title: str, *columns: str) -> Table:
    table = Table(box=SIMPLE, title=title, title_justify="left", show_header=False)
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right" if column == "size" else "left")
    return table


def _memory_table(plan: MemoryPlan) -> Table:
    budget, device = plan.budget, plan.device
    each = f"each of {plan.num_devices} × {device.name}" if plan.num_devices > 1 else device.name
    table = _table(f"Memory of {each}", "what", "size", "note")
    table.add_row("device", decimal_size(device.memory_bytes), binary_size(device.memory_bytes))
    if plan.drafter_bytes:
        note = "its weights; its KV lies in the same blocks"
        if plan.resolved is not None and plan.resolved.num_stages > 1:
            note = "its weights, as far as they make the last stage the fullest; its KV lies in the same blocks"
        table.add_row("what drafts", decimal_size(plan.drafter_bytes), note)
    rest = "the rest" if plan.drafter_bytes else "it"
    table.add_row("given to quire", decimal_size(budget.share), f"{budget.utilization:.0%} of {rest}")
    table.add_row("weights", decimal_size(budget.weights), _weights_note(plan))
    table.add_row("activations", decimal_size(budget.activations), "widest step, an estimate")
    table.add_row("sampling", decimal_size(budget.sampler), "logits of a full batch, an estimate")
    table.add_row("rows", decimal_size(budget.rows), "tokens and block tables of running sequences")
    if budget.swap:
        table.add_row("swap space", decimal_size(budget.swap), "comes out of the same memory")
    if budget.runtime:
        table.add_row("driver, libraries", decimal_size(budget.runtime), "context, workspaces, kernels, an estimate")
        table.add_row("graphs", decimal_size(budget.graphs), "decode steps of every size, an estimate")
    left = decimal_size(budget.kv) if budget.kv >= 0 else f"[red]{decimal_size(budget.kv)}[/red]"
    table.add_row("left for KV", left, "" if budget.kv >= 0 else "[red]too little[/red]")
    return table


def _weights_note(plan: MemoryPlan) -> str:
    """How they are stored, unless that is just what the device holds."""
    stored = plan.model.weight_bytes
    if stored == {plan.dtype: plan.budget.weights}:
        return plan.dtype
    return " + ".join(f"{decimal_size(size)} {dtype}" for dtype, size in stored.items()) + " as stored"


def _reads_table(plan: MemoryPlan) -> Table:
    table = _table("Weights that a decode step reads", "what", "size", "note")
    for count, size in plan.read_bytes.items():
        experts = "the experts that they choose, if they choose evenly"
        table.add_row(f"{count} sequence{'s' * (count > 1)}", decimal_size(size), experts if count == 1 else "")
    return table


def _kv_table(plan: MemoryPlan) -> Table:
    table = _table("KV cache", "what", "size", "note")
    table.add_row("a token", binary_size(plan.kv_bytes_per_token), f"{plan.kv_dtype}, all layers of one device")
    table.add_row("a block", binary_size(plan.block_bytes), "")
    if plan.resolved is None:
        return table
    limits, groups = plan.resolved.limits, len(plan.resolved.kv.groups)
    ranks = plan.resolved.attention_ranks
    of_each = "" if ranks == 1 else f", on each of {ranks} devices, which have sequences of their own"
    table.add_row("blocks", f"{plan.num_blocks:,}", f"of {plan.resolved.kv.block_size} tokens{of_each}")
    note = "in all layers; sliding windows leave room for more" if groups > 1 else ""
    table.add_row("tokens", f"{plan.num_tokens:,}", note)
    note = f"of {plan.seq_len:,} tokens at once"
    if plan.sequences_in_memory > limits.max_num_seqs * ranks:
        note += f" (memory holds {plan.sequences_in_memory:,}; --max-num-seqs is {limits.max_num_seqs:,})"
    table.add_row("sequences", f"{plan.sequences_at_once:,}", note)
    table.add_row("longest", f"{limits.max_model_len:,}", "tokens a sequence")
    return table


def _remedies_table(plan: MemoryPlan) -> Table:
    if not plan.remedies:
        table = _table("", "what")
        table.add_row("No single change makes it fit; use a smaller or a quantised model.")
        return table
    table = Table(
        "Change", "Then it has room for", box=SIMPLE, title="Any one of these makes it fit", title_justify="left"
    )
    for remedy in plan.remedies:
        table.add_row(remedy.change, remedy.outcome)
    return table
