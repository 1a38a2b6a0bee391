"""Heads that draft for a larger model: what the checkpoints of each kind hold, and their modules."""
