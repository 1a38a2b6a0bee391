"""What is asked: which dataset, and how long random prompts and answers are. Flags of `quire bench` come from here."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from quire.config.bounds import check, flag
from quire.core.errors import ConfigError
from quire.simulation.limits import LONGEST, MAX_NUMBER, TimeUnit

DatasetName = Literal["random", "sharegpt", "jsonl", "trace"]
PromptForm = Literal["ids", "text"]

USUAL_REQUESTS = 100
USUAL_OUTPUT = 128
_OF_RANDOM = ("input_len", "range_ratio", "prefix_len", "prefix_groups")
_OF_TRACES = ("trace_time", "trace_block")


@dataclass(frozen=True, slots=True)
class DatasetConfig:
    """What is asked."""

    dataset: DatasetName = "random"
    """random; sharegpt: conversations in ShareGPT's JSON; jsonl: lines with prompt or messages, and output_len; trace:
    lengths and moments in Azure's CSV or Mooncake's JSON lines, filled with random tokens."""
    dataset_path: Path | None = None
    """The file of a dataset that is not random."""
    num_requests: int | None = None
    """Requests to send. Unset: 100 random ones, or all of a file."""
    input_len: int = 512
    """Tokens of a random prompt, the shared prefix not counted."""
    output_len: int | None = None
    """Tokens of every answer, without an early end. Unset: 128 for random prompts, else what the file says."""
    range_ratio: float = 0.0
    """Spread of random lengths: 0.5 draws them from half to one and a half times as long."""
    prefix_len: int = 0
    """Tokens of the prefix that random prompts share."""
    prefix_groups: int = 1
    """Different prefixes, each shared by its group of requests."""
    prompt_form: PromptForm | None = None
    """Prompts as token ids, which are exact, or as text. Unset: ids, but text for chats."""
    trace_time: TimeUnit = "auto"
    """Unit of a trace's timestamp. auto: milliseconds where they are whole numbers, as in the Mooncake traces."""
    trace_block: int = 512
    """Prompt tokens that each of a trace's hash_ids stands for."""
    seed: int = 0
    """Seed of everything random; every repeat takes the next."""

    def __post_init__(self) -> None:
        if self.dataset == "random":
            self._refuse(("dataset_path",), "without --dataset")
        else:
            self._refuse(_OF_RANDOM, f"with --dataset {self.dataset}")
            if self.dataset_path is None:
                raise ConfigError(f"--dataset {self.dataset} needs a file; give it with --dataset-path.")
        if self.dataset != "trace":
            self._refuse(_OF_TRACES, "without --dataset trace")
        for name, low, high in (
            ("num_requests", 1, MAX_NUMBER),
            ("input_len", 1, LONGEST),
            ("output_len", 1, LONGEST),
            ("prefix_len", 0, LONGEST),
            ("prefix_groups", 1, MAX_NUMBER),
            ("trace_block", 1, LONGEST),
        ):
            value = getattr(self, name)
            ok = value is None or low <= value <= high
            check(ok, name, value, f"a whole number from {low} to {high}", "leave it out for the usual")
        check(
            0 <= self.range_ratio < 1, "range_ratio", self.range_ratio, "from 0 to below 1", "0 is one length for all"
        )
        if self.prefix_groups > 1 and not self.prefix_len:
            raise ConfigError("--prefix-groups has no effect without --prefix-len; give both.")

    def check_file(self) -> None:
        """Raise where the file is not there: for whoever would first load a model for it."""
        if self.dataset_path is not None and not self.dataset_path.expanduser().exists():
            raise ConfigError(f"the dataset {self.dataset_path} cannot be read: there is no such file.")

    def _refuse(self, names: tuple[str, ...], why: str) -> None:
        """A setting that would be ignored is refused."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in names:
            if getattr(self, name) != defaults[name]:
                raise ConfigError(f"{flag(name)} has no effect {why}; leave it out.")
