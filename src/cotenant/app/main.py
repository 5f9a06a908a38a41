"""The command line's door: commands, errors as one line, exit codes.

========  =====================================================
code      meaning
========  =====================================================
0         done
1         bad input, or a run that failed or differs
2         wrong usage: unknown option, command, name or policy
3         infeasible: it can never run on that cluster
4         something that is needed could not be reached
130       interrupted; what was finished is valid and kept
========  =====================================================

Nothing heavy is imported here or in the command modules' heads, so that ``--help`` is
quick; each command imports what it needs when it runs.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cotenant import __version__
from cotenant.app import (
    elastic,
    elasticdiff,
    experimenting,
    graphs,
    inputs,
    interference,
    liveadmin,
    livechange,
    livelogs,
    liveshow,
    livesubmit,
    liveup,
    livewait,
    measuring,
    members,
    predicting,
    reading,
    resourcing,
    running,
    twinning,
)
from cotenant.app.console import error, escape_unprintable, say
from cotenant.errors import CotenantError
from cotenant.runs.memory import frugal_frames

__all__ = ["EXIT_INTERRUPTED", "app", "main"]

EXIT_INTERRUPTED = 130


class _Group(TyperGroup):
    """Turns errors raised on purpose into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CotenantError as problem:
            _fail(str(problem), problem.exit_code, ctx)
        except KeyboardInterrupt:
            _fail("interrupted", EXIT_INTERRUPTED, ctx)
        except BrokenPipeError:
            # The reader of our output went away, as head does; nobody is left to tell.
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123
            raise typer.Exit(0) from None
        except OSError as problem:
            where = f"{problem.filename}: " if problem.filename else ""
            _fail(f"{where}{problem.strerror or problem}", 1, ctx)
        except MemoryError:
            _fail("out of memory; simulate fewer jobs, or fewer runs at once (--workers 1)", 1, ctx)


def _fail(text: str, code: int, ctx: Any) -> None:
    if ctx.params.get("debug") or os.environ.get("COTENANT_DEBUG"):
        traceback.print_exc()
    error(text)
    raise typer.Exit(code) from None


app = typer.Typer(
    name="cotenant",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Let deep-learning jobs share GPUs without hurting each other: run, predict, simulate, explain.",
    epilog="Exit codes: 0 done, 1 bad input or failed run, 2 usage, 3 infeasible, 4 not reachable, 130 interrupted.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"cotenant {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks with errors.")] = False,
) -> None:
    pass


liveup.add_to(app)
livesubmit.add_to(app)
liveshow.add_to(app)
livelogs.add_to(app)
livewait.add_to(app)
livechange.add_to(app)
liveadmin.add_to(app)
running.add_to(app)
reading.add_to(app)
experimenting.add_to(app)
twinning.add_to(app)
elastic.add_to(app)
elasticdiff.add_to(app)
measuring.add_to(app)
predicting.add_to(app)
graphs.add_to(app)
interference.add_to(app)
resourcing.add_to(app)
inputs.add_to(app)
members.add_to(app)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process if not given.
    """
    frugal_frames()
    escape_unprintable()
    words = list(sys.argv[1:] if argv is None else argv)
    if "--debug" in words[1:]:
        # Allowed after the command too: that is where one adds it when something went wrong.
        words.remove("--debug")
        words.insert(0, "--debug")
    try:
        app(words, prog_name="cotenant")
    except Exception as problem:  # the last line of defence: no raw traceback for users
        if "--debug" in words or os.environ.get("COTENANT_DEBUG"):
            raise
        error(f"unexpected {type(problem).__name__}: {problem}")
        error("this is a fault of cotenant; run again with --debug and report what it prints")
        sys.exit(1)
