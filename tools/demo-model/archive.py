"""Keeps the BF16 weights small: a safetensors file of 16-bit values with its high and low bytes apart, under xz.

The high bytes (sign and most of the exponent) compress well once they are together; the low ones hardly at all.
"""

import lzma


def pack(raw):
    """The archive of a safetensors file's bytes."""
    start = 8 + int.from_bytes(raw[:8], "little")
    return lzma.compress(raw[:start] + raw[start::2] + raw[start + 1 :: 2], preset=9)


def unpack(packed):
    """The bytes that were packed."""
    raw = lzma.decompress(packed)
    start = 8 + int.from_bytes(raw[:8], "little")
    half = (len(raw) - start) // 2
    data = bytearray(raw)
    data[start::2], data[start + 1 :: 2] = raw[start : start + half], raw[start + half :]
    return bytes(data)
