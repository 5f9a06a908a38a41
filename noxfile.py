"""Sessions for those who prefer nox; the Makefile does the same with one environment."""

import nox

nox.options.sessions = ["lint", "types", "tests"]
EVERYTHING = ".[dev,torch,huggingface,lightning,onnx,boost]"
CODE = ("src", "tests", "bench", "noxfile.py")


@nox.session(python=["3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the tests; arguments after -- go to pytest."""
    session.install("-c", "constraints.txt", "-e", EVERYTHING)
    session.run("pytest", "-n", "2", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def types(session: nox.Session) -> None:
    """Check static types."""
    session.install("-c", "constraints.txt", "-e", EVERYTHING)
    session.run("mypy")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting."""
    session.install("ruff>=0.8")
    session.run("ruff", "check", *CODE)
    session.run("ruff", "format", "--check", *CODE)


@nox.session
def docs(session: nox.Session) -> None:
    """Check links, commands and names in the documentation."""
    session.install("-c", "constraints.txt", "-e", EVERYTHING)
    session.run("pytest", "-q", "tests/test_docs.py")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure against the budgets."""
    session.install("-c", "constraints.txt", "-e", EVERYTHING)
    session.run("python", "-m", "bench", *session.posargs)
