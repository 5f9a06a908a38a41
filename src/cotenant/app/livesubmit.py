"""The command that submits jobs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cotenant.app.console import error, in_row, note, print_json, say
from cotenant.app.livebase import PANEL, Json, Key, State, asking

if TYPE_CHECKING:
    from cotenant.live.client import Answer, Client

__all__ = ["add_to", "bodies_of", "command_body"]

_FILES = (".toml", ".yaml", ".yml")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(rich_help_panel=PANEL)(submit)


def submit(  # noqa: PLR0917 - one parameter for each option
    words: Annotated[
        list[str] | None,
        typer.Argument(
            help="Job files, or after -- the command that runs.", metavar="JOB.toml... | -- COMMAND..."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="A label; default: the command.")] = None,
    gpus: Annotated[
        float | None, typer.Option("--gpus", "-g", help="Devices; below 1: that share of one (0.4).")
    ] = None,
    gpu_memory: Annotated[
        str | None, typer.Option("--gpu-memory", help="Peak memory on each device (6GiB).")
    ] = None,
    gpu_compute: Annotated[
        str | None, typer.Option("--gpu-compute", help="Share of each device that is guaranteed (40%).")
    ] = None,
    gpu_compute_limit: Annotated[
        str | None, typer.Option("--gpu-compute-limit", help="Ceiling for the use of idle compute (80%).")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", help="KEY=VALUE for the job, or KEY to hand on your own; repeat it."),
    ] = None,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", help="Folder where it runs; default: this one.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=-(10**6), max=10**6, help="Higher goes first.")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="For whom (the owner's token only).")] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Its kind (ResNet-50/b32), for what is predicted.")
    ] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", help="Your own estimate of how long it takes (2h).")
    ] = None,
    sharing: Annotated[
        str | None, typer.Option("--sharing", help="With whom: exclusive, same-owner, trusted, any.")
    ] = None,
    suspend: Annotated[
        str | None,
        typer.Option("--suspend", help="How it makes room: runtime, restart, pause, none."),
    ] = None,
    processes: Annotated[
        str | None,
        typer.Option(
            "--processes", help="one, or per-device: a rank for each device, as torchrun starts them."
        ),
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option("--after", help="Start when this job has ended well; repeat it.")
    ] = None,
    cpus: Annotated[float | None, typer.Option("--cpus", help="Cores for the whole job.")] = None,
    host_memory: Annotated[
        str | None, typer.Option("--host-memory", help="Host memory for the whole job (16GiB).")
    ] = None,
    retries: Annotated[int | None, typer.Option("--retries", help="Tries after a failure.")] = None,
    array: Annotated[
        int | None,
        typer.Option("--array", min=1, help="So many jobs like it; COTENANT_ARRAY_INDEX tells them apart."),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option("--sweep", help="NAME=V1,V2: a job for each value, as {NAME} or --NAME V; repeat it."),
    ] = None,
    elastic: Annotated[
        str | None,
        typer.Option(
            "--elastic",
            metavar="MIN:MAX",
            help="A script of cotenant.elastic, on so many devices; it starts with --gpus, or MIN.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when they have ended: 0 if all are done, else 1.")
    ] = False,
    key: Key = None,
    state: State = None,
    as_json: Json = False,
) -> None:
    """Submit jobs: job files, or a command after --. Returns when they are safe on disk."""
    given = {
        "name": name,
        "gpus": gpus,
        "gpu_memory": gpu_memory,
        "gpu_compute": gpu_compute,
        "gpu_compute_limit": gpu_compute_limit,
        "cwd": None if cwd is None else str(cwd),
        "priority": priority,
        "tenant": tenant,
        "model": model,
        "time_limit": time_limit,
        "sharing": sharing,
        "suspend": suspend,
        "cpus": cpus,
        "host_memory": host_memory,
        "retries": retries,
        "array": array,
        "processes": processes,
    }
    options = {field: value for field, value in given.items() if value is not None}
    options |= _lists(env or (), sweep or ()) | _range(elastic)
    bodies = bodies_of(words or [], options)
    if not after and (state is not None or not os.environ.get("COTENANT_URL")):
        check_folders(bodies)
        for program in missing_programs(bodies):
            note(
                f"{in_row(program)}: no such program where you look for one (PATH); the job fails unless the scheduler finds it"
            )
    with asking(state) as client:
        if after:
            numbers = [client.find(other).id for other in after]
            bodies = [{**body, "after": numbers} for body in bodies]
        _send(client, bodies, key, wait=wait, as_json=as_json)


def _lists(env: Sequence[str], sweep: Sequence[str]) -> dict[str, Any]:
    from cotenant.errors import UsageError

    found: dict[str, Any] = {}
    for text in env:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise UsageError(f"--env {name}: you have no such variable; write {name}=VALUE")
        found.setdefault("env", {})[name] = value if equals else os.environ[name]
    for text in sweep:
        name, equals, values = text.partition("=")
        if not name or not equals or not values:
            raise UsageError(f"--sweep {text}: write NAME=V1,V2 (--sweep lr=0.1,0.01)")
        found.setdefault("sweep", {})[name] = values.split(",")
    return found


def _range(text: str | None) -> dict[str, Any]:
    from cotenant.errors import UsageError

    if text is None:
        return {}
    low, colon, high = text.partition(":")
    if not (low.isdecimal() and (high.isdecimal() or not colon)):
        raise UsageError(f"--elastic {text}: write MIN:MAX, numbers of devices (--elastic 1:4)")
    return {"elastic": {"min_gpus": int(low), "max_gpus": int(high or low)}}


def bodies_of(words: Sequence[str], options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The jobs to send, checked as far as that can be done here.

    Parameters
    ----------
    words : sequence of str
        Names of job files if all of them end so, else a command.
    options : mapping
        Fields of a job file that were given as options; they stand above what a file says.

    Raises
    ------
    UsageError
        If there is neither, or a folder stands where the command should.
    ConfigError
        For a field that cannot be used.
    """
    from cotenant.errors import UsageError
    from cotenant.runs.arrays import expand
    from cotenant.runs.jobfile import job_of

    if not words:
        raise UsageError("nothing to submit: name a job file, or a command after -- (-- python train.py)")
    if all(word.endswith(_FILES) for word in words):
        found = [_file_body(Path(word), options) for word in words]
    elif Path(words[0]).is_dir() and (os.sep in words[0] or shutil.which(words[0]) is None):
        raise UsageError(
            f"{words[0]} is a folder: name a job file ({', '.join(_FILES)}), or a command after -- (-- python train.py)"
        )
    else:
        found = [command_body(words, options)]
    single = [job for body in found for job in expand(body)]
    for job in single:
        job_of(job, f'job "{job["name"]}"')
    return single


def check_folders(bodies: Sequence[Mapping[str, Any]]) -> None:
    """Folders of jobs that are to run on this machine, and wait for no other that could make theirs.

    Raises
    ------
    ConfigError
        Naming the first that is not there.
    """
    from cotenant.errors import ConfigError

    for body in bodies:
        if not body.get("after") and not Path(body["cwd"]).is_dir():
            raise ConfigError(
                f'job "{body["name"]}" [cwd]: no folder {body["cwd"]}; make it, or give another (--cwd DIR)'
            )


def missing_programs(bodies: Sequence[Mapping[str, Any]]) -> list[str]:
    """Programs that are not to be found here, each once; of jobs with a ``PATH`` of their own nobody knows."""
    found: dict[str, None] = {}
    for body in bodies:
        program = str((body.get("command") or [""])[0])
        if not program or "PATH" in body.get("env", {}) or shutil.which(program):
            continue
        if os.sep not in program or not (Path(body["cwd"]) / program).exists():
            found[program] = None
    return list(found)


def _file_body(path: Path, options: Mapping[str, Any]) -> dict[str, Any]:
    from cotenant.runs.jobfile import read_job
    from cotenant.traces.documents import read_document

    read_job(path)  # what is wrong with the file is told with its line
    body = {**read_document(path).data, **options}
    if options.get("env"):
        body["env"] = {**read_document(path).data.get("env", {}), **options["env"]}
    body["cwd"] = str(Path(body.get("cwd") or ".").expanduser().absolute())
    if body.get("command"):
        body["command"] = [_program(body["command"][0]), *body["command"][1:]]
    return body


def _program(word: str) -> str:
    """Where the caller would find it: the scheduler may have another ``PATH``."""
    return word if os.sep in word else shutil.which(word) or word


def command_body(words: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """A job from a command: its program is looked for where the caller would find it.

    The scheduler may have another ``PATH``: the ``python`` of an environment that is active here would be
    another one there.
    """
    label = " ".join([Path(words[0]).name, *words[1:]])[:60]
    body = {"name": "".join(c if c.isprintable() else " " for c in label), **options}
    body["command"] = [_program(words[0]), *words[1:]]
    body["cwd"] = str(Path(body.get("cwd") or ".").expanduser().absolute())
    return body


def _send(
    client: Client, bodies: Sequence[dict[str, Any]], key: str | None, *, wait: bool, as_json: bool
) -> None:
    from cotenant.live.client import new_key

    base = key or new_key()
    keys = [base if len(bodies) == 1 else f"{base}.{number}" for number in range(len(bodies))]
    answers = client.submit(list(zip(keys, bodies, strict=True)))
    told = [_told(body, answer) for body, answer in zip(bodies, answers, strict=True)]
    accepted = [answer.id for answer in answers if answer.id is not None]
    for one, answer in zip(told, answers, strict=True):
        if answer.error is not None:
            error(one["error"])
        elif not as_json:
            again = " (had been accepted before)" if answer.again else ""
            say(f'job {answer.id} "{in_row(one["name"])}" accepted{again}')
    if accepted and not as_json and any(_alone_though_a_part(body) for body in bodies):
        note(
            "how much memory it needs is not known, so it gets a device of its own, whatever part it asks for; "
            "give --gpu-memory (or --model, if that kind is known)"
        )
    code = max((answer.error.exit_code for answer in answers if answer.error is not None), default=0)
    if wait and accepted:
        from cotenant.app.livewait import wait_for

        ended = wait_for(client, accepted, quiet=as_json)
        told = [{**one, **ended.get(one["id"], {})} for one in told]
        code = max(code, 0 if all(one["status"] == "done" for one in ended.values()) else 1)
    if as_json:
        print_json({"jobs": told})
    if code:
        raise typer.Exit(code)


def _alone_though_a_part(body: Mapping[str, Any]) -> bool:
    """It asks for a part of a device, and shares with nobody because nobody knows its memory."""
    from cotenant.live.admission import memory_of_model
    from cotenant.runs.jobfile import job_of

    job = job_of(dict(body))[1]
    asks_part = bool(job.gpus) and job.compute_milli < 1000
    return asks_part and not job.memory_bytes and not memory_of_model(job.model)


def _told(body: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    if answer.error is not None:
        return {"id": None, "name": body["name"], "error": str(answer.error)}
    return {"id": answer.id, "name": body["name"], "again": answer.again}
