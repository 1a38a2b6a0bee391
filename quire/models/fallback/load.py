"""Building a model from transformers' own code: the only file that imports that library. It runs no code from a
checkpoint and reads no file but config.json and .safetensors.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from quire.core.errors import CheckpointError, ConfigError
from quire.models.fallback.attention import OBSERVED, OWN, attention_function
from quire.models.fallback.decoder import FallbackDecoder
from quire.models.fallback.masks import mask_function
from quire.models.fallback.refused import problem_of, refusal
from quire.models.fallback.trial import try_out
from quire.spec.model import ModelSpec

_OLDEST = (5, 0)
_ADAPTER = "adapter_config.json"


def load_fallback(
    path: Path,
    config: Mapping[str, Any],
    spec: ModelSpec,
    *,
    dtype: torch.dtype,
    device: torch.device,
    random_seed: int | None = None,
) -> FallbackDecoder:
    """The model in the folder `path`, whose config.json is `config`, tried out and ready to run; `spec` is its outline.

    With a `random_seed` its weights are random instead of read.
    """
    named = f"{path} is of type {config.get('model_type', '')!r}"
    transformers = _library(named)
    problem = problem_of(config) or _class_problem(transformers, config)
    if problem is not None:
        raise CheckpointError(refusal(named, problem))
    if not path.is_dir():
        raise CheckpointError(refusal(named, f"{path.name} is a single file, and it needs a folder with a config.json"))
    if (path / _ADAPTER).exists():
        # transformers would load the model that the adapter names, wherever that is
        raise CheckpointError(refusal(named, f"its folder holds an adapter ({_ADAPTER}); keep the model alone in it"))
    _register(transformers)
    with _quiet(transformers):
        if random_seed is None:
            causal = _read(transformers, path, named, dtype, device)
        else:
            causal = _make_up(transformers, path, dtype, device, random_seed)
        causal.eval().requires_grad_(False)
        model = FallbackDecoder(causal, spec)
        try_out(model, causal, named, device)
    return model


def _library(named: str) -> Any:
    try:
        import transformers
    except ImportError:
        transformers = None
    version = "0" if transformers is None else transformers.__version__
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) >= _OLDEST:
        return transformers
    found = "is not installed" if transformers is None else f"is {version}"
    raise ConfigError(
        f"{named}, which runs through the library transformers "
        f"{'.'.join(map(str, _OLDEST))} or later, but that {found} here; run `pip install quire[transformers]`."
    )


def _class_problem(transformers: Any, config: Mapping[str, Any]) -> str | None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    model_type = config.get("model_type")
    if model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return None
    if config.get("auto_map"):
        return "its code is in the checkpoint (auto_map), and quire runs no code from checkpoints"
    return f"transformers {transformers.__version__} has no causal language model of type {model_type!r}"


def _register(transformers: Any) -> None:
    from transformers.masking_utils import AttentionMaskInterface

    for name in (OWN, OBSERVED):
        transformers.AttentionInterface.register(name, attention_function)
    AttentionMaskInterface.register(OBSERVED, mask_function)


def _read(transformers: Any, path: Path, named: str, dtype: torch.dtype, device: torch.device) -> Any:
    try:
        causal, report = transformers.AutoModelForCausalLM.from_pretrained(  # nosec B615 # local files only
            path,
            config=_config(transformers, path),
            dtype=dtype,
            # without a map the weights would be in host memory first; a map needs a further library
            device_map=None if device.type == "cpu" else {"": device},
            attn_implementation="eager",
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are in the report, by name
        )
    except Exception as error:  # another library's, about a stranger's files: it has many kinds
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(refusal(named, f"transformers does not load it ({said})")) from error
    for kind in ("missing_keys", "mismatched_keys"):
        names = sorted(key if isinstance(key, str) else str(key[0]) for key in report.get(kind, ()))
        if names:
            raise CheckpointError(
                f"{path}: {len(names)} tensors that its config asks for are missing or have another shape, "
                f"{names[0]} among them; the download may be incomplete."
            )
    return causal


def _make_up(transformers: Any, path: Path, dtype: torch.dtype, device: torch.device, seed: int) -> Any:
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.device(device):
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(
            _config(transformers, path), dtype=dtype, attn_implementation="eager", trust_remote_code=False
        )


def _config(transformers: Any, path: Path) -> Any:
    config = transformers.AutoConfig.from_pretrained(  # nosec B615 # local files only
        path, trust_remote_code=False, local_files_only=True
    )
    # a config could name kernels that transformers would then download, code and all
    config._experts_implementation = None
    return config


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Its progress bars and hints are for notebooks; quire says itself what matters."""
    logging_of = transformers.utils.logging
    level, had_bars = logging_of.get_verbosity(), logging_of.is_progress_bar_enabled()
    logging_of.set_verbosity_error()
    logging_of.disable_progress_bar()
    try:
        yield
    finally:
        logging_of.set_verbosity(level)
        if had_bars:
            logging_of.enable_progress_bar()
