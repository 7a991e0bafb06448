#!/usr/bin/env python3
"""Shows a text's tokens by libkiln through ctypes: tokens.py LIBRARY TEXT [FILE].

With FILE, a session is brought to the tokens, and saved there or taken from there."""
import ctypes
import json
import os
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


class Synced(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("size", "reused", "extended", "rebuilt")]


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
shown = {"tokens": tokens[: count.value], "text": ctypes.string_at(text.value, length.value).decode()}
if len(sys.argv) > 3:
    file, session = Text(sys.argv[3]), ctypes.c_void_p()
    check(kiln.kiln_session_new(engine, ctypes.byref(session)))
    if os.path.exists(sys.argv[3]):
        check(kiln.kiln_session_load(session, file, None, None))
    synced = Synced(size=ctypes.sizeof(Synced))
    check(kiln.kiln_session_sync(session, tokens, count, ctypes.byref(synced)))
    shown["reused"] = synced.reused
    check(kiln.kiln_session_save(session, file))
    check(kiln.kiln_session_free(session))
print(json.dumps(shown))
kiln.kiln_free(text)
kiln.kiln_free(tokens)
check(kiln.kiln_engine_close(engine))
