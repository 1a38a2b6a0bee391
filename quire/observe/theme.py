"""The look of quire's pages: colours and type, the same in the console and in reports."""

from pathlib import Path


def theme_css() -> str:
    """Custom properties for light and dark; a page that inlines them needs nothing else."""
    return Path(__file__).with_name("theme.css").read_text(encoding="utf-8")
