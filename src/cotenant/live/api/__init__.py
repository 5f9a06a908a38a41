"""The HTTP API of the live scheduler, and the page it serves."""

from cotenant.live.api.app import create_app
from cotenant.live.api.auth import Auth, digest_of
from cotenant.live.api.metrics import exposition
from cotenant.live.api.problems import Problem, problem_of, status_of
from cotenant.live.api.server import Served, serve
from cotenant.live.api.settings import ApiSettings

__all__ = [
    "ApiSettings",
    "Auth",
    "Problem",
    "Served",
    "create_app",
    "digest_of",
    "exposition",
    "problem_of",
    "serve",
    "status_of",
]
