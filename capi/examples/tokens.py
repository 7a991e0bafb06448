#!/usr/bin/env python3
"""Shows a text's tokens by libkiln through ctypes: tokens.py LIBRARY TEXT."""
import ctypes
import json
import sys


class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("length", ctypes.c_size_t)]

    def __init__(self, of=""):
        raw = of.encode()
        super().__init__(raw, len(raw))


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)]
    _fields_ += [(name, Text) for name in ("model", "device", "weights", "system", "listen")]
    _fields_ += [(name, ctypes.c_uint32) for name in ("context", "batch", "threads")]


class Error(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("code", ctypes.c_int32), ("message", Text), ("remedy", Text)]


kiln = ctypes.CDLL(sys.argv[1])
kiln.kiln_free.argtypes = [ctypes.c_void_p]


def check(code):
    if code != 0:
        error = Error(size=ctypes.sizeof(Error))
        kiln.kiln_last_error(ctypes.byref(error))
        sys.exit(ctypes.string_at(error.message.data, error.message.length).decode())


engine = ctypes.c_void_p()
options = Options(size=ctypes.sizeof(Options), device=Text("cpu"))
check(kiln.kiln_engine_open(ctypes.byref(options), ctypes.byref(engine)))
tokens, count = ctypes.POINTER(ctypes.c_uint32)(), ctypes.c_size_t()
check(kiln.kiln_tokenize(engine, Text(sys.argv[2]), True, ctypes.byref(tokens), ctypes.byref(count)))
text, length = ctypes.c_void_p(), ctypes.c_size_t()
check(kiln.kiln_detokenize(engine, tokens, count, ctypes.byref(text), ctypes.byref(length)))
print(json.dumps({"tokens": tokens[: count.value], "text": ctypes.string_at(text.value, length.value).decode()}))
kiln.kiln_free(text)
kiln.kiln_free(tokens)
check(kiln.kiln_engine_close(engine))
