"""The standard streams, as far as they can be closed, full, or of a narrow encoding."""

from __future__ import annotations

import json
import os
import sys


def prepare() -> bool:
    """Make the streams fit to print any text to; False where there is no standard output.

    Characters that the encoding lacks are written as escapes. What is printed to a stream that was
    closed before the program started is lost.
    """
    has_output = sys.stdout is not None
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - for good
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None and sys.stdout.errors == "strict":
        reconfigure(errors="backslashreplace")
    return has_output


def drop_output() -> None:
    """Let what is still to be written go nowhere, so that nothing fails when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def json_text(data: object) -> str:
    """`data` as indented JSON; with escapes where the encoding of standard output needs them."""
    text = json.dumps(data, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(data, indent=2)
    return text
