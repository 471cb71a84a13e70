"""What may reach a terminal: one filter for every text that is not ours. Pipes are left to callers.

Dropped: C0 controls except newline and tab, DEL, C1 controls, bidirectional controls and lone
surrogates. Everything is judged one character at a time, so a text may be filtered in pieces.
"""

from __future__ import annotations

import re

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile(f"[\x7f-\x9f{_BIDI}\ud800-\udfff]")


def sanitize(text: str) -> str:
    """`text` without the characters that can steer a terminal or reorder what is read."""
    return _UNSAFE.sub("", text)


def one_line(text: str) -> str:
    """`text` made safe for a message of one line: line breaks and tabs become spaces."""
    return " ".join(sanitize(text).split())


def escape_json(document: str) -> str:
    r"""A JSON document with the same characters written as \uXXXX: same value, safe to look at."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", document)
