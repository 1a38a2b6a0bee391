"""ProcessorRows: which rows asked for which logits processors, and what that makes of a batch's logits.

Rows that did not ask keep their logits bit for bit, whatever a processor does.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from quire.sampling.logits_processor import LogitsProcessor
from quire.sampling.newcomer import Newcomer


class ProcessorRows:
    """Of one worker."""

    def __init__(
        self, kinds: Mapping[str, type[LogitsProcessor]], max_rows: int, vocab_size: int, device: torch.device
    ) -> None:
        self._processors = {name: kind(vocab_size, max_rows, device) for name, kind in kinds.items()}
        self._asked = {name: torch.zeros(max_rows + 1, dtype=torch.bool, device=device) for name in kinds}
        """By processor and row: whether its sequence asked for it."""
        self._names: dict[int, tuple[str, ...]] = {}
        """By row: the processors that it asked for."""

    @property
    def need_the_host(self) -> bool:
        """Whether some row asked for a processor that no graph can hold."""
        asked = {name for names in self._names.values() for name in names}
        return any(not self._processors[name].can_be_captured for name in asked)

    def admit(self, row: int, newcomer: Newcomer) -> None:
        asked = newcomer.params.logits_processor_args or {}
        if asked:
            self._names[row] = tuple(asked)
        for name, arguments in asked.items():
            self._processors[name].admit(row, arguments, newcomer.prompt, newcomer.output)
            self._asked[name][row].fill_(True)  # an assignment would wait for the device

    def release(self, row: int) -> None:
        """Nothing happens where the row is free, or asked for nothing."""
        for name in self._names.pop(row, ()):
            self._asked[name][row].fill_(False)
            self._processors[name].release(row)

    def apply(self, names: Sequence[str], logits: Tensor, rows: Tensor, positions: Tensor, history: Tensor) -> Tensor:
        """Logits [n, vocabulary] as these processors, one after the other, make them; float32."""
        made = logits.float()
        for name in names:
            changed = self._processors[name].apply(made.clone(), rows, positions, history)
            assert changed.shape == made.shape, f"the logits processor {name} made {tuple(changed.shape)} of logits"
            made = torch.where(self._asked[name][rows][:, None], changed.float(), made)
        return made
