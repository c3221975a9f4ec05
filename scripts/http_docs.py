"""Write docs/http.md from the table of routes, the models and the error tree: ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path

from jupyter_sandbox import errors
from jupyter_sandbox.models import Request
from jupyter_sandbox.server.routes import PREFIX, ROUTES, Nothing, Route

TARGET = Path(__file__).parent.parent / "docs" / "http.md"

HEAD = f"""# The HTTP API

Below the base URL of any Jupyter server that has the package, or of `jupyter sandbox serve`, at `/{PREFIX}/`. Made from
the code by `make docs`.

Sign in with `Authorization: Bearer TOKEN`: Jupyter's own token, or the store's, which opens this API only (kernels find
it in `JUPYTER_SANDBOX_TOKEN`, everybody else with the URL in `server.json` of the store). In a path `{{ref}}` is an id or
a name; `runtime_id`, `checkpoint_id` and `session_id` in a body are ids, as answers give them. Bodies are JSON objects; a
field that is not known is an error. POST, PATCH and DELETE may carry `Idempotency-Key`: a retry with the same key gets
the first answer. *events* are JSON lines, sent as they come; the last one is `done`, or `failed` with an error body.

```sh
export URL=http://127.0.0.1:8888/{PREFIX} AUTH="Authorization: Bearer $TOKEN"   # of the server that you use
curl -H "$AUTH" -d '{{"name": "exp"}}' $URL/runtimes
curl -H "$AUTH" -d '{{"code": "x = 41"}}' $URL/runtimes/exp/cells
curl -H "$AUTH" -d '{{"checkpoint": "base"}}' $URL/sandboxes/exp/checkpoint
curl -H "$AUTH" -d '{{"name": "kid"}}' $URL/sandboxes/base/fork
```

| method and path | fields (*required*) | answer |
|---|---|---|
"""

ERRORS = """
## Errors

`{"code", "message", "remedy", "context"}`; `context.field` names the field of a 400. Codes are the classes of one tree
(`jupyter_sandbox.errors`), which the Python client raises again.

| HTTP | code |
|---|---|
"""


def fields(model: type[Request] | None) -> str:
    """The fields of a request, required ones in italics."""
    if model is None or model is Nothing:
        return ""
    return ", ".join(
        f"*{field.alias or name}*" if field.is_required() else (field.alias or name)
        for name, field in model.model_fields.items()
    )


def row(route: Route) -> str:
    """One line of the table."""
    taken = "the file's bytes" if route.raw else fields(route.body)
    query = fields(route.query)
    parts = [taken, f"query: {query}" if query else ""]
    return f"| `{route.method} {route.path}` | {'; '.join(part for part in parts if part)} | {route.answer.name} |"


def codes(cls: type[errors.SandboxError]) -> list[tuple[int, str]]:
    """HTTP status and code of a class and all below it."""
    return [(cls.http_status, cls.__name__), *(pair for child in cls.__subclasses__() for pair in codes(child))]


def page() -> str:
    """The whole page."""
    by_status: dict[int, list[str]] = {}
    for status, code in sorted(codes(errors.SandboxError)):
        by_status.setdefault(status, []).append(f"`{code}`")
    rows = "\n".join(map(row, ROUTES))
    return HEAD + rows + "\n" + ERRORS + "".join(f"| {s} | {', '.join(c)} |\n" for s, c in by_status.items())


if __name__ == "__main__":
    sys.exit(TARGET.write_text(page()) == 0)
