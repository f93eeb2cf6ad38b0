"""A fuzzer over everything that gsebo reads: files, objects and command lines.

It looks for what must never happen, whatever is given: a traceback, a crash, a hang,
memory without bound, output that is half-written, and input that is silently taken for
what it is not. ``python -m fuzz --help`` says how to run it.
"""
