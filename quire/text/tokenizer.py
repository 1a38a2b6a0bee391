"""The vocabulary of one model: text to token ids and back. Knows nothing of the files it came from."""

from collections.abc import Sequence

import tokenizers

from quire.core.errors import InvalidRequest
from quire.text.detokenizer import Detokenizer
from quire.text.pairs import PROBES, PairFrame, frame_of
from quire.text.pieces import Pieces
from quire.text.special_tokens import SpecialTokens

MOST_CHARACTERS = 4_000_000
"""About a million tokens. The regex engine below gives up on runs of more than ten million spaces."""


class Tokenizer:
    """Encodes and decodes. Nothing in it changes after creation, so threads may share it."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special: SpecialTokens,
        *,
        source: str,
        most_characters: int = MOST_CHARACTERS,
        with_types: bool = True,
        vocab_size: int | None = None,
    ) -> None:
        """`source` names the tokenizer in errors; texts of more than `most_characters` are refused.

        `with_types`: the model is told which of a pair's texts a token is of. `vocab_size` is looked up unless given,
        which takes a tenth of a start.
        """
        # A tokenizer.json may carry the settings of its training; a prompt is never cut or padded.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._most_characters = most_characters
        self._with_types = with_types
        if vocab_size is None:
            vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.vocab_size = vocab_size
        """One more than the highest token id."""
        self.pieces = Pieces(backend, self.vocab_size, source)
        self.special = special

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`; special tokens written out in it are recognised."""
        return self.encode_batch([text], add_special_tokens=add_special_tokens)[0]

    def encode_batch(self, texts: Sequence[str], *, add_special_tokens: bool = True) -> list[list[int]]:
        """The ids of each text, worked out on several threads."""
        for text in texts:
            self._check(text)
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=add_special_tokens)
        except BaseException as error:
            # A panic in the library, such as its regex engine giving up on a pathological text, is no Exception.
            if type(error).__name__ != "PanicException":
                raise
            raise InvalidRequest(f"the text cannot be tokenized: {error}; shorten its long runs of spaces.") from None
        return [encoding.ids for encoding in encodings]

    def spans(self, text: str, tokens: Sequence[int]) -> list[tuple[int, int]] | None:
        """Where in `text` each of its tokens begins and ends, in characters; an added special token is at (0, 0).

        None where the tokens are not all of the text's: cut, or of another.
        """
        for add_special_tokens in (False, True):
            encoding = self._backend.encode(text, add_special_tokens=add_special_tokens)
            if encoding.ids == tokens:
                return [(start, end) for start, end in encoding.offsets]
        return None

    def pair_frame(self) -> PairFrame:
        """How two texts are written as one sequence."""
        encoded = (self._backend.encode(*probe) for probe in PROBES)
        frames = (frame_of(pair, with_types=self._with_types) for pair in encoded)
        return next((frame for frame in frames if frame is not None), PairFrame())

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of all tokens at once; ids that are no tokens add nothing."""
        detokenizer = self.detokenizer(skip_special_tokens=skip_special_tokens)
        return detokenizer.extend(token_ids) + detokenizer.flush()

    def detokenizer(
        self, *, skip_special_tokens: bool = True, shown: Sequence[int] = (), prompt: Sequence[int] = ()
    ) -> Detokenizer:
        """For the text of one sequence as its tokens come, behind `prompt` where one is given.

        `shown` are special tokens that are not skipped with the others.
        """
        return Detokenizer(self.pieces, skip_special_tokens=skip_special_tokens, shown=shown, prompt=prompt)

    def id_to_token(self, token_id: int) -> str | None:
        """How the vocabulary spells a token, which is not how it reads; None for an id that is no token."""
        return self._backend.id_to_token(token_id) if 0 <= token_id < self.vocab_size else None

    def as_json(self) -> str:
        """As the `tokenizers` library writes it."""
        return self._backend.to_str()

    def token_to_id(self, token: str) -> int | None:
        return self._backend.token_to_id(token)

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to a text behind others; nothing for an id that is no token."""
        piece = self.pieces.later(token_id)
        return piece.encode() if isinstance(piece, str) else piece or b""

    def is_special(self, token_id: int) -> bool:
        """Whether decoding leaves the token out when special tokens are skipped."""
        return token_id in self.pieces.special_ids

    def is_added(self, token_id: int) -> bool:
        """Whether the token was added to a vocabulary, special or not: it is cut out of texts before all others."""
        return token_id in self.pieces.added_ids

    @property
    def bos_token_id(self) -> int | None:
        return self.special.bos

    @property
    def eos_token_id(self) -> int | None:
        """The first of `eos_token_ids`."""
        return next(iter(self.special.eos), None)

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.special.eos

    @property
    def pad_token_id(self) -> int | None:
        return self.special.pad

    @property
    def unk_token_id(self) -> int | None:
        return self.special.unk

    def named_tokens(self) -> dict[str, str]:
        """The special tokens by the names that chat templates know: bos_token, eos_token, pad_token, unk_token."""
        ids = {
            "bos_token": self.bos_token_id,
            "eos_token": self.eos_token_id,
            "pad_token": self.pad_token_id,
            "unk_token": self.unk_token_id,
        }
        return {name: token for name, token_id in ids.items() if (token := self._spelled(token_id)) is not None}

    def _spelled(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.id_to_token(token_id)

    def _check(self, text: str) -> None:
        if len(text) > self._most_characters:
            raise InvalidRequest(
                f"a text of {len(text):,} characters is longer than the {self._most_characters:,} that are tokenized "
                "at once; shorten it."
            )
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(
                f"the text holds half of a surrogate pair at character {error.start:,}; send valid Unicode."
            ) from None
