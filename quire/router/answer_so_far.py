"""AnswerSoFar: what a client has of an answer, as another member would need it."""

from quire.protocol.journal import AnswerIdentity, Note, Progress, Resumption


class AnswerSoFar:
    """Grows by the notes of the frames whose payloads the client was sent."""

    def __init__(self) -> None:
        self.identity: AnswerIdentity | None = None
        self.prompt_tokens = 0
        self.num_tokens = 0
        """Of all sequences."""
        self._sequences: dict[tuple[int, int], Progress] = {}

    def take(self, note: Note) -> None:
        """An answer that went on elsewhere begins with a first frame again; its identity stays."""
        if self.identity is None:
            self.identity = note.identity
        self.prompt_tokens = self.prompt_tokens or note.prompt_tokens
        for news in note.news:
            self.num_tokens += len(news.tokens)
            known = self._sequences.get((news.prompt, news.index))
            if known is None:
                self._sequences[news.prompt, news.index] = news
                continue
            known.tokens.extend(news.tokens)
            if news.end is not None:
                ended = Progress(news.prompt, news.index, known.tokens, news.end)
                self._sequences[news.prompt, news.index] = ended

    def resumption(self) -> Resumption | None:
        """None where only the member that began it can go on."""
        return None if self.identity is None else Resumption(self.identity, list(self._sequences.values()))
