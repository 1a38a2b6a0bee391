"""What drafts for a model, where that has weights of its own: a smaller model, or a head on the large one's states."""

from dataclasses import replace
from pathlib import Path

import torch

from quire.config.resolved import DraftPlan, HeadPlan, Resolved
from quire.layers.policy import WeightPolicy
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.heads.draft_head import DraftHead
from quire.models.heads.medusa_heads import MedusaHeads
from quire.models.language_model import LanguageModel
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_described
from quire.models.loading.described import describe_local
from quire.models.loading.described_head import describe_head
from quire.observe.start_clock import StartClock
from quire.parallel.peers import Peers
from quire.spec.draft_head import head_kind
from quire.spec.model import ModelSpec
from quire.spec.rank import Place, rank_spec
from quire.spec.share import Share
from quire.text.vocabulary_map import map_vocabulary
from quire.worker.cpu_core import CpuCore, open_cache
from quire.worker.speculative.draft_model import DraftModel
from quire.worker.speculative.draft_vocabulary import DraftVocabulary
from quire.worker.speculative.features import Features
from quire.worker.speculative.loaded_head import LoadedHead
from quire.worker.start_model import own_model
from quire.worker.weight_methods import method_of, schemes_of, shares_of


def start_drafter(
    path: Path,
    resolved: Resolved,
    spec: ModelSpec,
    large: LanguageModel | FallbackDecoder,
    device: torch.device,
    core: CpuCore | None,
    clock: StartClock,
    peers: Peers | None,
) -> DraftModel | LoadedHead | None:
    """What drafts for the model at `path`, where that has weights of its own; `spec` is that of all ranks together."""
    if resolved.draft is not None:
        return _draft_model(resolved.draft, path, spec.vocab_size, device, core, clock, peers)
    if resolved.head is None:
        return None
    return _draft_head(resolved.head, resolved, spec, large, device, core, clock, peers)


def _draft_model(
    draft: DraftPlan,
    large_path: Path,
    large_vocab_size: int,
    device: torch.device,
    core: CpuCore | None,
    clock: StartClock,
    peers: Peers | None,
) -> DraftModel:
    """The model that drafts, with its weights; or a rank's part of it, where it is cut as the large one is."""
    path, resolved = Path(draft.path), draft.resolved
    described = describe_local(path, "quire")
    vocab_size = described.matched.spec.vocab_size
    words = map_vocabulary(large_path, large_vocab_size, path, vocab_size)
    own_core = None
    if core is not None and resolved.cpu_core:
        own_core = CpuCore(core.machine, open_cache(path, resolved))
    # of a pipeline it is all on the last stage
    sharers = Peers(peers.group, None) if peers is not None and resolved.tensor_parallel_size > 1 else None
    model = own_model(described, resolved, device, own_core, clock, None, sharers, in_background=False)
    clock.done("the model that drafts")
    vocabulary = None if words is None else DraftVocabulary(words, vocab_size, device)
    return DraftModel(model, resolved.kv, own_core, vocabulary)


def _draft_head(
    plan: HeadPlan,
    resolved: Resolved,
    spec: ModelSpec,
    large: LanguageModel | FallbackDecoder,
    device: torch.device,
    core: CpuCore | None,
    clock: StartClock,
    peers: Peers | None,
) -> LoadedHead:
    """The head that drafts, with its weights, held as the large model's are; or a rank's part of it."""
    assert isinstance(large, LanguageModel), "heads draft for quire's own families"
    assert resolved.speculation is not None, "someone drafts"
    described = describe_head(Path(plan.path), head_kind(resolved.speculation.method), spec)
    matched, dtype = described.matched, getattr(torch, resolved.dtype)
    alone = replace(resolved, quantization=None)  # what is quantized on the way is the large model
    own_core = None if core is None else CpuCore(core.machine, None)
    policy = WeightPolicy(dtype, device, method_of(matched, alone, dtype, device, own_core))
    head_spec, shares = matched.spec, dict[str, Share]()
    group = None if peers is None else peers.group
    if plan.tensor_parallel_size > 1:
        assert group is not None, "it is cut for the ranks of the large model"
        head_spec = rank_spec(head_spec, Place(group.rank, group.size, plan.column_grain, resolved.expert_parallel))
        shares = shares_of(head_spec.tensors(), schemes_of(matched, alone))
        policy = replace(policy, group=group)
    medusa = resolved.speculation.method == "medusa"
    head = MedusaHeads(head_spec, policy) if medusa else DraftHead(head_spec, policy, large)
    load_weights(head, open_described(described, shares))
    clock.done("the head that drafts")
    return LoadedHead(head, plan.kv, Features(plan.features, device), own_core)
