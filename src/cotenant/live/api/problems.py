"""One shape for every error, and which status it has."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from cotenant import errors

__all__ = ["BadRequestError", "HttpError", "Problem", "problem_of", "status_of"]

_log = logging.getLogger("cotenant.live.api")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong.

    Parameters
    ----------
    error : str
        Its kind: a class of ``cotenant.errors``, or one of ``BadRequestError``, ``MethodNotAllowedError``,
        ``TooLargeError``, ``MediaTypeError``, ``TooManyError``, ``BusyError``, ``InternalError``.
    message : str
        What was asked and what was found.
    detail : str
        Where, if that is known: a path into the body, a field of the query.
    hint : str
        What to do.
    """

    error: str
    message: str
    detail: str = ""
    hint: str = ""


class HttpError(errors.LiveError):
    """A refusal of the API itself.

    Parameters
    ----------
    status : int
    error : str
        Its kind.
    headers : mapping
        Sent with the answer.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        *,
        detail: str = "",
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})
        self.problem = Problem(error=error, message=message, detail=detail, hint=hint)


class BadRequestError(HttpError):
    """A request that is not as the API's description says."""

    def __init__(self, message: str, *, detail: str = "", hint: str = "see /openapi.json") -> None:
        super().__init__(400, "BadRequestError", message, detail=detail, hint=hint)


# What is not as /openapi.json says is a 400; what is, and yet cannot be used, a 422.
_STATUS: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.InfeasibleError, 422, "ask for what the devices have: GET /v1/devices"),
    (errors.InputError, 422, ""),
    (errors.DeniedError, 403, "use the token of the tenant that owns it, or the administrator's"),
    (errors.NotFoundError, 404, "GET /v1/jobs lists the jobs there are"),
    (errors.ConflictError, 409, "a new request needs a new key; GET the job to see its state"),
    (errors.FencedError, 503, "another scheduler has taken over; ask that one"),
    (errors.StoreError, 503, "nothing of this request was kept; try again"),
    (errors.UnreachableError, 503, "try again"),
)


def status_of(error: Exception) -> int:
    """HTTP status of an error; 500 for what should not happen."""
    if isinstance(error, HttpError):
        return error.status
    return next((status for kind, status, _ in _STATUS if isinstance(error, kind)), 500)


def problem_of(error: Exception) -> Problem:
    """An error as the API tells it. Of an unexpected one nothing is told; it goes to the log."""
    if isinstance(error, HttpError):
        return error.problem
    for kind, _, hint in _STATUS:
        if isinstance(error, kind):
            return Problem(error=type(error).__name__, message=str(error), hint=hint)
    if isinstance(error, errors.CotenantError):
        return Problem(error=type(error).__name__, message=str(error), hint="see the scheduler's own log")
    _log.error("unexpected error while answering", exc_info=error)
    return Problem(
        error="InternalError",
        message="the scheduler could not answer because of a fault of its own",
        hint="its own log says more",
    )
