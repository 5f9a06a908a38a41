"""The API described for programs: OpenAPI 3.1, made from the table of operations."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.live.api.problems import Problem
from cotenant.live.api.routes import ROUTES, Empty, Route
from cotenant.runs.jobfile import JobFile

__all__ = ["describe"]

_FAULTS = {
    400: ("Malformed", "The request is not as described here.", "BadRequestError", "$.jobs: expected `array`, got `str`"),
    401: ("Unknown", "No token, or a wrong one.", "DeniedError", "no token"),
    403: ("Denied", "Not this tenant's, or not from our own page or name.", "DeniedError", "job 7 is another tenant's"),
    404: ("Missing", "No such job, device or operation.", "NotFoundError", "no job 7"),
    408: ("Late", "The body did not arrive in time.", "BadRequestError", "the body did not arrive within 10 s"),
    409: ("Conflict", "The key was used for something else, or the state does not allow it.", "ConflictError", "job 7 has ended"),
    413: ("TooLarge", "The body is too large.", "TooLargeError", "a body of more than 4,194,304 bytes"),
    415: ("MediaType", "The body is not JSON.", "MediaTypeError", "a body of type 'text/plain'"),
    422: ("Unusable", "Well formed, and yet it cannot be done.", "InfeasibleError", "2 devices asked, 1 could hold it"),
    429: ("TooMany", "Too many requests, or wrong tokens.", "TooManyError", "too many wrong tokens"),
    500: ("Internal", "A fault of the scheduler.", "InternalError", "the scheduler could not answer"),
    503: ("Busy", "Overloaded, its disk failed, or another one has taken over.", "StoreError", "the log could not be written"),
}  # fmt: skip
_ALWAYS = (400, 401, 403, 408, 429, 500, 503)
_DETAIL = {429: "Retry-After", 503: "Retry-After", 401: "WWW-Authenticate"}
_EXAMPLES: dict[str, Any] = {
    "submit": {
        "jobs": [
            {
                "key": "3f0c7c5e-1",
                "job": {
                    "name": "resnet",
                    "command": ["python", "train.py"],
                    "gpus": 1,
                    "gpu_memory": "6GiB",
                    "gpu_compute": "40%",
                },
            }
        ]
    },
    "priority": {"key": "3f0c7c5e-2", "priority": 10},
    "resize": {"key": "3f0c7c5e-3", "compute_milli": 300, "compute_limit_milli": 800},
    "drain": {"key": "3f0c7c5e-4", "node": 0},
    "undrain": {"key": "3f0c7c5e-5", "node": 0},
    "login": {"token": "the token of the state folder"},
    "logout": {},
}
_ANSWERS: dict[str, Any] = {
    "submit": {"jobs": [{"id": 0, "again": False}]},
    "health": {"ok": True},
    "me": {"tenant": "", "admin": True},
    "login": {"tenant": "", "admin": True},
    "logout": {},
}
_DONE = {"seq": 12, "t": 34.5, "again": False}
_REF = "#/components/schemas/{name}"


def describe(version: str) -> dict[str, Any]:
    """The whole description; needs nothing from outside."""
    types: list[Any] = [Problem, JobFile]
    types += [route.body for route in ROUTES if route.body is not None]
    types += [route.answer for route in ROUTES if not isinstance(route.answer, str)]
    _, schemas = _components(types)
    # A job is checked by itself, so that one bad job of many does not refuse the others: any object is taken here.
    schemas["SubmitItem"]["properties"]["job"] = {
        "description": "The fields of a job file, as JobFile; what does not fit is answered with an error of this job alone.",
        "anyOf": [{"$ref": _REF.format(name="JobFile")}, {"type": "object"}],
    }
    schemas["ResizeBody"]["minProperties"] = 2
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "cotenant",
            "version": version,
            "summary": "Deep-learning jobs that share the devices of one machine.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {name: _fault(status) for status, (name, *_) in _FAULTS.items()},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The administrator's token (file `token` of the state folder), or a tenant's.",
                }
            },
        },
    }


def _components(types: list[Any]) -> tuple[Any, Any]:
    """Schemas of types; a tuple of equals as an array of that length, which more programs understand."""
    refs, schemas = msgspec.json.schema_components(types, ref_template=_REF)
    return [_modern(one) for one in refs], {name: _modern(one) for name, one in schemas.items()}


def _modern(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_modern(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _modern(value) for key, value in schema.items()}
    kinds = found.pop("prefixItems", [])
    if kinds and all(kind == kinds[0] for kind in kinds):
        found["items"] = kinds[0]  # how many is told beside
    elif kinds:
        found["prefixItems"] = kinds
    return found


def _fault(status: int) -> dict[str, Any]:
    _, text, error, message = _FAULTS[status]
    headers = {}
    if status in _DETAIL:
        headers[_DETAIL[status]] = {"schema": {"type": "string"}}
    example = {"error": error, "message": message, "detail": "", "hint": ""}
    schema = {"$ref": _REF.format(name="Problem")}
    return {
        "description": text,
        "headers": headers,
        "content": {"application/json": {"schema": schema, "example": example}},
    }


def _operation(route: Route) -> dict[str, Any]:
    faults = sorted({*_ALWAYS, *route.faults})
    responses = {str(f): {"$ref": f"#/components/responses/{_FAULTS[f][0]}"} for f in faults}
    responses[str(route.status)] = _success(route)
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": route.text,
        "parameters": _parameters(route),
        "responses": dict(sorted(responses.items())),
    }
    if route.open:
        found["security"] = []
    if route.body is not None:
        schema = {"$ref": _REF.format(name=route.body.__name__)}
        example = _EXAMPLES.get(route.name, {"key": f"3f0c7c5e-{route.name}"})
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": example}},
        }
    return found


def _success(route: Route) -> dict[str, Any]:
    if isinstance(route.answer, str):
        content: dict[str, Any] = {"schema": {"type": "string"}}
        kind = route.answer
    else:
        (schema,), _ = _components([route.answer])
        content, kind = {"schema": schema}, "application/json"
        example = _DONE if route.status == 202 else _ANSWERS.get(route.name)
        if example is not None:
            content["example"] = example
    answer: dict[str, Any] = {"description": route.summary, "content": {kind: content}}
    if route.name == "logs":
        number = {"schema": {"type": "string", "pattern": "^[0-9]+$"}}
        answer["headers"] = {"X-Cotenant-Offset": number, "X-Cotenant-Next": number}
    if route.name in ("login", "logout"):
        answer["headers"] = {"Set-Cookie": {"schema": {"type": "string"}}}
    return answer


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if "{id}" in route.path:
        number = {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999}
        found.append({"name": "id", "in": "path", "required": True, "schema": number, "example": 0})
    if route.query is not Empty:
        schema = msgspec.json.schema(route.query)["$defs"][route.query.__name__]
        for name, full in schema["properties"].items():
            inner = dict(full)
            # What is left out of a query is not written as null.
            kinds = [kind for kind in inner.pop("anyOf", []) if kind != {"type": "null"}]
            inner |= kinds[0] if kinds else {}
            if inner.get("default", 0) is None:
                del inner["default"]
            found.append({"name": name, "in": "query", "required": False, "schema": inner})
    return found
