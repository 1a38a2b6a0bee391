"""Media: where they may come from, how large they may be, and how many a prompt may have."""

from collections.abc import Sequence
from dataclasses import dataclass

from quire.config.bounds import check
from quire.core.errors import ConfigError, InvalidRequest

KINDS = ("image", "video", "audio")
_USUAL = {"image": 16, "video": 4, "audio": 16}
_MOST_EACH = 4096


@dataclass(frozen=True, slots=True)
class MultimodalConfig:
    """Media: where they may come from, how large they may be, and how many a prompt may have."""

    limit_mm_per_prompt: str = "image=16,video=4,audio=16"
    """Media of each kind that a prompt may have at most, as kind=number; 0 refuses it. Kinds are image, video and
    audio."""
    allowed_media_domains: str | None = None
    """Hosts whose http and https URLs are fetched, separated by commas; *.example.org is all below it. Unset: none is,
    and media come in the body or as uploaded files. Addresses that are not public are never asked, and redirects are
    not followed."""
    allowed_local_media_path: str | None = None
    """A folder below which file:// URLs may lie. Unset: none is read."""
    media_max_mb: float = 20.0
    """MiB of one image, video or sound, as it is stored."""
    media_max_pixels: int = 64 * 1024 * 1024
    """Pixels of one image or frame; larger ones are refused before they are decoded. The frames that are read of a
    video have so many together: they are made smaller for it."""
    media_max_frames: int = 128
    """Frames that are read of one video; where the model's own rule would read more, they lie further apart."""
    media_max_seconds: float = 3600.0
    """How long a video may last, or a sound in a conversation; models may take less."""
    media_fetch_seconds: float = 10.0
    """How long fetching one URL may take in all."""
    encoder_cache_tokens: int = 16_384
    """Embeddings of media that are kept on the device, by content: what comes again is not encoded again. Host
    memory keeps eight times as many."""

    def __post_init__(self) -> None:
        _ = self.limits
        for name, least, most in (
            ("media_max_mb", 0.001, 4096),
            ("media_max_pixels", 1, 2**31),
            ("media_max_frames", 2, 4096),
            ("media_max_seconds", 0.1, 86_400),
            ("media_fetch_seconds", 0.1, 600),
            ("encoder_cache_tokens", 1, 2**31),
        ):
            value = getattr(self, name)
            check(least <= value <= most, name, value, f"from {least} to {most}", "or leave it out")

    @property
    def limits(self) -> dict[str, int]:
        """How many of each kind."""
        found = dict(_USUAL)
        for part in filter(None, (part.strip() for part in self.limit_mm_per_prompt.split(","))):
            kind, _, number = part.partition("=")
            if kind not in _USUAL or not number.isdecimal() or int(number) > _MOST_EACH:
                raise ConfigError(
                    f"--limit-mm-per-prompt is {self.limit_mm_per_prompt!r}; it is kind=number separated by commas, "
                    f"kinds being {', '.join(_USUAL)} and numbers up to {_MOST_EACH}, for example image=4."
                )
            found[kind] = int(number)
        return found

    def check_counts(self, kinds: Sequence[str]) -> None:
        """Raises InvalidRequest where a prompt has more of a kind than is allowed."""
        for kind, most in self.limits.items():
            count = sum(each == kind for each in kinds)
            if count > most:
                raise InvalidRequest(
                    f"the prompt has {count} media of kind {kind}, and {most} are the most (--limit-mm-per-prompt)",
                    field="messages",
                )

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(part.strip().lower() for part in (self.allowed_media_domains or "").split(",") if part.strip())
