"""A listener that only remembers what it was told last."""

from quire.core.errors import QuireError
from quire.serving.messages import PromptNews, Refused, SequenceNews


class SilentListener:
    def __init__(self) -> None:
        self.told: list[object] = []

    def accepted(self) -> None:
        self.told.append("accepted")

    def refused(self, refusal: Refused) -> None:
        self.told.append(refusal)

    def news(self, news: SequenceNews) -> None:
        self.told.append(news)

    def prompt_news(self, news: PromptNews) -> None:
        self.told.append(news)

    def lost(self, error: QuireError) -> None:
        self.told.append(error)
