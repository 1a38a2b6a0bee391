"""Proposers that need no model of their own, by the method of `--speculative-config`; plugins add theirs."""

from typing import Any

from quire.config.speculation import Speculation
from quire.core.errors import PluginError
from quire.core.registry import Registry
from quire.ops.step_tensors import RowStates
from quire.worker.speculative.draft_rows import DraftRows
from quire.worker.speculative.proposer import Proposer

LOOKUPS: Registry[Proposer] = Registry(
    "proposer",
    {
        "ngram": "quire.worker.speculative.ngram:NgramProposer",
        "suffix": "quire.worker.speculative.suffix:SuffixProposer",
    },
    group="quire.proposers",
)


def make_proposer(asked: Speculation, states: RowStates, drafts: DraftRows) -> Proposer:
    """The one that is asked for, over the rows of one worker."""
    kind: Any = LOOKUPS.get(asked.method)
    if not (isinstance(kind, type) and issubclass(kind, Proposer)):
        raise PluginError(f"the proposer {asked.method!r} is {kind!r}, and must be a subclass of Proposer.")
    made: Proposer = LOOKUPS.get(asked.method)(asked, states, drafts)
    return made
