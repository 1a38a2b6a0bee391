"""LoadedHead: a head that drafts, with its weights, and where what it keeps of tokens lies."""

from dataclasses import dataclass

from quire.config.resolved import KVLayout
from quire.models.heads.draft_head import DraftHead
from quire.models.heads.medusa_heads import MedusaHeads
from quire.worker.cpu_core import CpuCore
from quire.worker.speculative.features import Features


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """For one worker."""

    module: DraftHead | MedusaHeads
    kv: KVLayout | None
    """None: it looks at one token alone."""
    features: Features
    core: CpuCore | None
    """The native core, where that computes it."""

    @property
    def taps(self) -> tuple[int, ...]:
        """Layers of the large model whose inputs it wants."""
        return self.module.taps
