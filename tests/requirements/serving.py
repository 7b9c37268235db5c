"""Two serving processes that share nothing of ours but these lines; prints what each saw, as JSON.

Usage: `python serving.py SCRATCH ENTRY SITE...`. SCRATCH is the one folder that can be written. Each
process imports lfbo_aot from a SITE of its own. Torch and Helion, which take long to import, are
imported once, and the processes forked then.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import traceback
from pathlib import Path

SCRATCH = Path(sys.argv[1])
CHANGES = ("mkdir", "remove", "rename", "rmdir", "link", "symlink", "chmod", "truncate", "utime")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
refused: list[str] = []
opened: list[str] = []


def read_only(event, args):
    """Stands for a disk mounted read-only, but for SCRATCH; keeps what was opened at all."""
    if event == "open":
        opened.append(str(args[0]))
    if not (event.removeprefix("os.") in CHANGES or (event == "open" and args[2] & WRITING)):
        return
    if isinstance(args[0], int):
        return
    path = Path(os.fsdecode(args[0])).absolute()
    if path.is_relative_to(SCRATCH) or path.is_relative_to("/dev"):
        return
    if event == "os.mkdir" and path.exists():
        return  # the system says so itself
    refused.append(f"{event} {path}")
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


def serve(number, site):
    """In a child: look shipped kernels up and call them; what came of it goes to a file."""
    sys.path.insert(0, site)
    import interpreted

    found = interpreted.serve(SCRATCH / f"tuned{number}", json.loads(sys.argv[2]), opened, number)
    (SCRATCH / f"{number}.json").write_text(json.dumps({**found, "refused": refused}))


def status_of(number, site):
    try:
        serve(number, site)
    except Exception:  # noqa: BLE001 - a child mustn't go on as its parent does
        traceback.print_exc()
        return 1
    return 0


def main():
    sys.addaudithook(read_only)
    os.environ["TRITON_INTERPRET"] = "1"
    import helion  # noqa: F401
    import torch  # noqa: F401

    assert "lfbo_aot" not in sys.modules
    children = []
    for number, site in enumerate(sys.argv[3:]):
        child = os.fork()
        if child == 0:
            os._exit(status_of(number, site))
        children.append(child)
    for child in children:
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
    found = [json.loads((SCRATCH / f"{n}.json").read_text()) for n in range(len(children))]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
