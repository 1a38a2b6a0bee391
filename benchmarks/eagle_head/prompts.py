"""What the model is asked to write about: every form with every subject."""

import random

_SUBJECTS = (
    "rivers", "bridges", "bread", "chess", "glass", "bees", "maps", "salt", "kites", "tides", "clocks", "gardens",
    "trains", "volcanoes", "music", "paper", "coffee", "wolves", "lighthouses", "sailing", "mathematics", "history",
    "medicine", "painting", "spiders", "rain", "economics", "friendship", "cooking", "football", "robots", "dreams",
    "libraries", "markets", "birds", "languages", "cities", "oceans", "forests", "bicycles", "photography", "law",
    "sleep", "winter", "deserts", "energy", "computers", "poetry", "teachers", "money", "travel", "insects", "stars",
    "castles", "health", "software", "databases",
)  # fmt: skip
_FORMS = (
    "Write a short list of facts about {}.",
    "Explain {} to a child in three sentences.",
    "What are the advantages and disadvantages of {}?",
    "Write a story about {}.",
    "Write a poem about {}.",
    "Give me five tips on {}.",
    "How did {} change over time?",
    "Write an email to a friend about {}.",
    "Write a Python function that has to do with {}, and explain it.",
    "Compare {} with something else that you know.",
    "Why do people care about {}?",
    "Describe {} without naming it.",
    "What should I know about {} before I begin?",
    "Summarize what you know about {} in one paragraph.",
    "Make a table of things that belong to {}.",
    "Write a dialogue of two people who talk about {}.",
)


def draw_prompt(generator: random.Random) -> str:
    """One of them."""
    return generator.choice(_FORMS).replace("{}", generator.choice(_SUBJECTS))
