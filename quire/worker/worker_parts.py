"""What a worker has beside its model, its KV and its way to sample: nothing, unless the settings ask for it."""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.config.speculation import Speculation
from quire.models.loading.kv_scales import KVScale
from quire.parallel.group import Group
from quire.worker.adapter_store import AdapterStore
from quire.worker.expert_copies import ExpertCopies
from quire.worker.expert_helper import ExpertHelper
from quire.worker.last_stage import LastStage
from quire.worker.media_rows import MediaRows
from quire.worker.speculative.draft_model import DraftModel
from quire.worker.speculative.loaded_head import LoadedHead


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """Of one worker."""

    kv_scales: Sequence[KVScale] | None = None
    """What the keys and values of each layer are divided by, where they are stored in fp8."""

    batch_invariant: bool = False
    """Attention keeps the order of its sums, whatever is in the batch. The model's matrices are to do so as well."""

    group: Group | None = None
    """The ranks that compute the model together."""

    helper: ExpertHelper | None = None
    """It computes experts for other ranks' tokens, where nothing else is shared."""

    stage: LastStage | None = None
    """The worker's place in a pipeline."""

    first_layer: int = 0
    """The number of the model's first layer in the whole of it."""

    speculation: Speculation | None = None
    """How drafts are made, where any are."""

    drafter: DraftModel | LoadedHead | None = None
    """The model or head that drafts, where `speculation` asks for one."""

    adapters: AdapterStore | None = None
    """The model's LoRA adapters."""

    copies: ExpertCopies | None = None
    """Those of its experts, where it may have any."""

    counts_experts: bool = True
    """Whether routers count the tokens of each expert, unless the core computes, which always does."""

    media: MediaRows | None = None
    """Those of prompts, where the model reads any."""
