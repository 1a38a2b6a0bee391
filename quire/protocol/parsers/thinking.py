"""Thinking: the part of an answer in which a model reasons before it says anything, and the marks around it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a family of models marks its thinking."""

    start: str = "<think>"
    end: str = "</think>"
    assumed: bool = False
    """Whether answers begin within it unless the prompt has closed it, though neither wrote its start."""
    in_sections: bool = False
    """Whether the format of the answer reads it, since all of the answer is in sections."""

    def recognizes(self, template: str) -> bool:
        return self.end in template

    def is_open(self, prompt: str) -> bool:
        """Whether an answer to this prompt begins within the thinking part."""
        if self.in_sections:
            return False
        return prompt.rstrip().endswith(self.start) or (self.assumed and not self.is_over(prompt))

    def is_over(self, prompt: str) -> bool:
        """Whether the prompt has opened and closed the thinking part, so that the answer has none."""
        return not self.in_sections and prompt.rstrip().endswith(self.end)
