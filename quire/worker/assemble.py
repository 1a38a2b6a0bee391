"""What a worker is put together from: each part made of its settings, or None where it has no such part."""

from collections.abc import Callable

import torch
from torch import Tensor

from quire.config.resolved import KVLayout, StepLimits
from quire.layers.batch import KVLayer
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.language_model import LanguageModel
from quire.ops.functional import batch_invariant_attention, paged_attention
from quire.ops.step_tensors import RowStates
from quire.sampling.core_sampler import CoreSampler
from quire.sampling.sampler import Sampler
from quire.sampling.state import SamplingState
from quire.spec.model import ModelSpec
from quire.worker.core_memory import CoreMemory
from quire.worker.cpu_core import CpuCore
from quire.worker.encoded_media import EncodedMedia
from quire.worker.expert_figures import ExpertFigures
from quire.worker.plain_steps import PlainSteps
from quire.worker.prefix_tiles import TilesOnDevice
from quire.worker.recorded import RecordedModel
from quire.worker.shared_prefix import SharedPrefixes
from quire.worker.speculative.drafting import Drafting
from quire.worker.worker_parts import WorkerParts


def can_be_captured(model: LanguageModel | FallbackDecoder, experts: ExpertFigures, drafting: Drafting | None) -> bool:
    """Whether decode steps can be graphs: nothing in them waits for the host."""
    if drafting is not None and not drafting.can_be_captured:
        return False
    return model.can_be_captured if isinstance(model, FallbackDecoder) else not experts.come_and_go


def make_encoded_media(
    model: LanguageModel | FallbackDecoder, limits: StepLimits, device: torch.device
) -> EncodedMedia | None:
    if not isinstance(model, LanguageModel) or model.encoder is None:
        return None
    return EncodedMedia(model, limits.max_num_seqs + 1, max(1, limits.max_encoded), device)


def make_drafting(
    parts: WorkerParts,
    layout: KVLayout,
    limits: StepLimits,
    states: RowStates,
    sampler: Sampler,
    memory: CoreMemory | None,
    logits: Callable[..., Tensor],
) -> Drafting | None:
    """`logits` makes the large model's."""
    if parts.speculation is None:
        return None
    of_all_tokens = [number for number, each in enumerate(layout.groups) if each.window is None]
    return Drafting(
        *(parts.speculation, limits, states, sampler, memory),
        ranks=parts.group,
        drafter=parts.drafter,
        group=next(iter(of_all_tokens), 0),
        attend=batch_invariant_attention if parts.batch_invariant else paged_attention,
        large_logits=logits,
        block_size=layout.block_size,
        stream=None if parts.stage is None else parts.stage.stream,
    )


def record_model(model: LanguageModel, kv: list[KVLayer], core: CpuCore, parts: WorkerParts) -> RecordedModel:
    adapters, taps = parts.adapters, () if parts.drafter is None else parts.drafter.taps
    # a record without adapters would be of no use to a start with them, nor one with taps to a start without
    keep = core.keep if adapters is None and not taps else None
    return RecordedModel(model, kv, core.machine, keep, 0 if adapters is None else adapters.num_slots, taps)


def make_plain_steps(
    computed: LanguageModel | FallbackDecoder | RecordedModel,
    core: CpuCore | None,
    memory: CoreMemory | None,
    sampling: SamplingState,
    layout: KVLayout,
    drafting: Drafting | None,
) -> PlainSteps | None:
    """None where steps are tensors from end to end."""
    if core is None or memory is None or not isinstance(computed, RecordedModel):
        return None
    sampler = CoreSampler(len(memory.lengths.computed), sampling.vocab_size, sampling.engine_seed, core.machine)
    return PlainSteps(computed, sampler, memory, layout.block_size, drafting, sampling.adjustments)


def row_states(memory: CoreMemory) -> RowStates:
    """The same memory as tensors."""
    return RowStates(
        tokens=torch.from_numpy(memory.tokens),
        num_computed=torch.from_numpy(memory.computed),
        lengths_for_angles=torch.from_numpy(memory.lengths_for_angles),
        tables=[torch.from_numpy(table) for table in memory.tables],
    )


def make_prefix_tiles(
    spec: ModelSpec, layout: KVLayout, limits: StepLimits, device: torch.device
) -> TilesOnDevice | None:
    """None where every layer has a window, or computes in more than 16 bits, as tests of exactness do, or where one
    sequence has as many heads as a tile has room for.
    """
    itemsize = getattr(torch, layout.dtype).itemsize
    groups = [index for index, group in enumerate(layout.groups) if group.window is None]
    if not groups or itemsize > 2:
        return None
    from quire.ops.triton.card import least_reads_saved
    from quire.ops.triton.shared_prefix_attention import most_members

    members = most_members(spec.num_heads // spec.num_kv_heads)
    if members < 2:
        return None
    least = -(-least_reads_saved(device) // (layout.groups[groups[0]].elements_per_token * itemsize))
    return TilesOnDevice(SharedPrefixes(groups, layout.block_size), limits.max_num_seqs, members, least, device)
