"""What a KV cache of bytes keeps beside its numbers, for those who plan memory and those who write it."""

INT8_SCALE = 4
"""Bytes of the float32 that each int8 key and value vector of a KV head was divided by."""
