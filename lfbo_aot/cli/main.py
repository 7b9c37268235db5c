"""The command `lfbo-aot`. Only the module of the command that is run is imported.

Exit status: 0 done; 1 it ran, and the answer is no; 2 wrong use.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import TYPE_CHECKING
from typing import NoReturn

from lfbo_aot.cli import streams
from lfbo_aot.errors import DatabaseError
from lfbo_aot.errors import DeviceUnavailableError
from lfbo_aot.errors import LfboAotError
from lfbo_aot.errors import MissError
from lfbo_aot.errors import TuningError
from lfbo_aot.errors import suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "lfbo-aot"
_DESCRIPTION = (
    "Ahead-of-time tuning for Helion GPU kernels. "
    "Exit status: 0 done; 1 it ran, and the answer is no; 2 wrong use."
)
COMMANDS = {
    "tune": "tune the declared kernels on the device here",
    "list": "list the entries of the databases",
    "get": "look one config up, and say how it was found",
    "explain": "show all that was weighed for one look-up, and why it was answered so",
    "coverage": "show which declared buckets are covered on which arch or device",
    "pin": "have one entry served before all others, or no more",
    "verify": "check a database for damage and for what no look-up reaches",
    "status": "show how far tuning runs are, from another terminal",
    "merge": "merge the entries of other databases into one",
    "export": "write an archive for tuning on another machine, or with what was tuned",
    "import": "merge what an archive holds into a database",
    "pack": "make a wheel that holds nothing but a database",
    "doctor": "show the device and the databases as seen here",
}
MODULES = {"import": "import_"}
"""Of commands whose name can't be a module's."""
_ANSWERS = ("list", "get", "explain", "coverage", "verify", "status", "doctor")
"""Commands that do nothing but print."""
_ANSWER_IS_NO = (DatabaseError, DeviceUnavailableError, MissError, TuningError)


class Parser(argparse.ArgumentParser):
    """Errors on one line, after the pattern of all others."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: error: {message}\nTry: {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name); returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    has_output = streams.prepare()
    try:
        return _run(words, has_output=has_output)
    except SystemExit as stop:  # argparse: help was shown, or the use was wrong
        return stop.code if isinstance(stop.code, int) else 2
    except LfboAotError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 1 if isinstance(error, _ANSWER_IS_NO) else 2
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. Nothing may be flushed into the closed pipe.
        streams.drop_output()
        return 0
    except OSError as error:
        if error.filename is None:  # else it isn't about the output
            streams.drop_output()
            error = OSError(f"standard output can't be written: {error.strerror}")
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM}: interrupted", file=sys.stderr)
        return 130


def _run(words: list[str], *, has_output: bool) -> int:
    parser = Parser(prog=PROGRAM, description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="print the version, and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    word = next((w for w in words if not w.startswith("-")), None)
    if word is None:
        for name, line in COMMANDS.items():
            commands.add_parser(name, help=line)
        if parser.parse_args(words).version:
            print(PROGRAM, _version())
            return 0
        parser.print_help(sys.stderr)
        return 2
    if word not in COMMANDS:
        parser.error(f"unknown command {word!r}. {suggestion(word, COMMANDS)}".strip())
    if word in _ANSWERS and not has_output:
        print(f"{PROGRAM}: error: standard output is closed", file=sys.stderr)
        return 1
    _log_to_stderr()
    module = importlib.import_module(f"lfbo_aot.cli.{MODULES.get(word, word)}")
    module.add_parser(commands)
    args, extra = parser.parse_known_args(words)
    if extra and hasattr(args, "dims") and all(_is_dim(w) for w in extra):
        # argparse takes positional words in one run only; shapes may stand after options too.
        args.dims = [*args.dims, *extra]
    elif extra:
        known = commands.choices[word]._option_string_actions  # noqa: SLF001 - no public reader
        near = suggestion(extra[0], known) if extra[0].startswith("-") else ""
        commands.choices[word].error(f"unknown argument {extra[0]!r}. {near}".strip())
    status = int(module.run(args))
    sys.stdout.flush()
    return status


def _is_dim(word: str) -> bool:
    return "=" in word and not word.startswith("-")


def _log_to_stderr() -> None:
    import logging

    logging.basicConfig(level=logging.WARNING, format=f"{PROGRAM}: %(levelname)s: %(message)s")


def _version() -> str:
    from importlib import metadata

    return metadata.version(PROGRAM)


if __name__ == "__main__":
    sys.exit(main())
