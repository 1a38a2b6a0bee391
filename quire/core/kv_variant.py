"""KV variants: prompts of different variants have different KV for the same tokens, so they share none."""

LONG_VARIANT = "long"
"""Of sequences beyond the length at which position angles change."""
