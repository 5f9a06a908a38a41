"""The command that runs the scheduler: ``cotenant up``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cotenant.app import completing
from cotenant.app.console import note, print_json, say
from cotenant.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from cotenant.live.options import UpOptions

__all__ = ["add_to"]

PANEL = "Run jobs"
_DETACH_S = 180.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
"""The scheduler's own arrays are small: more threads only take time from jobs, whose own numbers the host sets."""


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command(rich_help_panel=PANEL)(up)


def up(  # noqa: PLR0917 - one parameter for each option
    state: Annotated[
        Path | None,
        typer.Option("--state", help="State folder; default: COTENANT_STATE_DIR, else the user's own."),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device", help="cpu:0-1, an NVIDIA index or UUID; repeat it. Default: all that are found."
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", help="Policy, with parameters: cotenant:min_speed=0.4.")
    ] = "cotenant",
    policy_params: Annotated[
        list[str] | None, typer.Option("--policy-params", help="name=value; repeat it.")
    ] = None,
    forecast: Annotated[
        str,
        typer.Option(
            "--forecast",
            help="Of speeds: auto, adaptive, adaptive:FIT, contention, none.",
            autocompletion=completing.forecasts,
        ),
    ] = "auto",
    settings: Annotated[
        list[str] | None, typer.Option("--settings", help="name=value of docs/settings.md; repeat it.")
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of the API; 0: any free one.")] = 0,
    bind: Annotated[str, typer.Option("--bind", help="Address of the API.")] = "127.0.0.1",
    insecure: Annotated[
        bool,
        typer.Option(
            "--i-understand-that-tokens-cross-the-network-readable",
            help="Serve another address than the loopback without TLS.",
        ),
    ] = False,
    certificate: Annotated[Path | None, typer.Option("--tls-certificate", help="PEM file.")] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", help="PEM file.")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", help="Name (or NAME:PORT) of a proxy, say, by which it is asked, too; repeat it."
        ),
    ] = None,
    open_metrics: Annotated[bool, typer.Option("--open-metrics", help="/metrics needs no token.")] = False,
    store: Annotated[
        str,
        typer.Option("--store", help="postgresql://... for the log; default: a file in the state folder."),
    ] = "",
    state_memory: Annotated[
        str, typer.Option("--state-memory", help="Host memory for saved states of waiting jobs; 0: none.")
    ] = "1GiB",
    state_disk: Annotated[
        str | None,
        typer.Option("--state-disk", help="Disk for them; default: no limit; 0: they stay with their jobs."),
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait until nobody leads, then take over.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background; returns when the API answers.")
    ] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Write a systemd user unit with these options; starts nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Run the scheduler on this machine: submitted jobs share its devices. Jobs run on when it ends."""
    for name in _ONE_THREAD:
        os.environ.setdefault(name, "1")
    from cotenant.live.options import UpOptions, allowed_names
    from cotenant.live.statedir import state_path

    if policy_params:
        policy = ":".join((policy, *policy_params))
    options = UpOptions(
        state=state_path(state),
        devices=tuple(device or ()),
        policy=policy,
        forecast=forecast,
        settings=tuple(settings or ()),
        bind=bind,
        port=port,
        allow_plain=insecure,
        certificate=certificate,
        key=key,
        allow_hosts=tuple(allow_host or ()),
        open_metrics=open_metrics,
        store=store,
        standby=standby,
        state_memory_bytes=_size(state_memory),
        state_disk_bytes=None if state_disk is None else _size(state_disk),
        quiet=as_json,
    )
    allowed_names(options.allow_hosts)  # now, and not when it leads or the unit starts
    if install and detach:
        raise ConfigError("--install writes a unit and starts nothing; leave --detach out")
    if install:
        _install(options, as_json)
    elif detach:
        _detach(options, as_json)
    else:
        _run(options, as_json)


def _size(text: str) -> int:
    from cotenant.model.quantities import parse_bytes

    return 0 if text.strip() == "0" else parse_bytes(text)


def _run(options: UpOptions, as_json: bool) -> None:
    from cotenant.live.daemon import Daemon

    def ready(url: str) -> None:
        if as_json:
            print_json({"url": url, "state": str(options.state)})
        else:
            note(f"page and API: {url} (token: {options.state / 'token'}); Ctrl-C ends it, jobs run on")

    code = Daemon(options, ready).run()
    if code:
        raise typer.Exit(code)


def _detach(options: UpOptions, as_json: bool) -> None:
    from cotenant.live.detached import detach

    told = detach(options, _DETACH_S)
    if as_json:
        print_json({"url": told.url, "pid": told.pid, "state": str(options.state)})
        return
    if not told.url:
        raise UnreachableError(f"nothing answers; see {options.state / 'daemon.log'}")
    say(f"cotenant runs: {told.url} (process {told.pid}); its log: {options.state / 'daemon.log'}")


def _install(options: UpOptions, as_json: bool) -> None:
    from cotenant.live.detached import install_unit

    path, text = install_unit(options)
    if as_json:
        print_json({"unit": str(path), "text": text})
        return
    say(f"written: {path}\n")
    say(text)
    say(
        "start it now and at every login:  systemctl --user daemon-reload && systemctl --user enable --now cotenant"
    )
    say("keep it while nobody is logged in: loginctl enable-linger")
