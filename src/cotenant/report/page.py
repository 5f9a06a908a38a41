"""Building HTML from values: every text is escaped, by construction."""

from __future__ import annotations

import functools
import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from cotenant.report.tables import NOT_AVAILABLE, show

if TYPE_CHECKING:
    from cotenant.report.chartparts import Chart

__all__ = ["Html", "document", "el", "figure", "join", "tabular"]


class Html(str):
    """Markup that is already safe; any other string is text and is escaped."""

    __slots__ = ()


_EMPTY = ("meta", "br")


def _text(value: str | Html) -> str:
    return value if isinstance(value, Html) else html.escape(show(value), quote=True)


def el(tag: str, *children: str | Html, **attributes: str) -> Html:
    """One element.

    Attribute names may end in an underscore (``class_``); underscores inside become hyphens.

    >>> el("td", "<b>", class_="text")
    '<td class="text">&lt;b&gt;</td>'
    """
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    opening = tag + "".join(f' {name}="{html.escape(value, quote=True)}"' for name, value in names.items())
    if tag in _EMPTY:
        return Html(f"<{opening}>")
    return Html(f"<{opening}>{''.join(map(_text, children))}</{tag}>")


def join(parts: Iterable[str | Html]) -> Html:
    """Parts one after the other."""
    return Html("".join(map(_text, parts)))


def tabular(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Html]],
    *,
    text_columns: int = 1,
    class_: str = "",
) -> Html:
    """A table with a caption for those who do not see it; the first column heads its row."""
    head = join(
        el("th", h, scope="col", class_="text" if i < text_columns else "") for i, h in enumerate(heads)
    )
    body = []
    for first, *rest in rows:
        cells = [el("td", v, class_="text" if i + 1 < text_columns else "") for i, v in enumerate(rest)]
        body.append(el("tr", el("th", first, scope="row"), *cells))
    inner = el(
        "table",
        el("caption", el("span", caption, class_="unseen")),
        el("thead", el("tr", head)),
        el("tbody", *body),
        class_=class_,
    )
    return el("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def figure(chart: Chart) -> Html:
    """A chart with its title and how to read it; ``document`` gets its specification by its key."""
    caption = el("figcaption", el("h3", chart.title), el("p", chart.text))
    if chart.spec is None:
        body = el("p", chart.empty or NOT_AVAILABLE, class_="empty")
    else:
        body = el(
            "div", id=chart.key, class_="chart", role="img", aria_label=f"{show(chart.title)}. {chart.text}"
        )
    return el("figure", caption, body, class_="card wide" if chart.wide else "card")


def script_json(value: Any) -> Html:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def static(name: str) -> str:
    """A file that ships with the report."""
    return (resources.files("cotenant.report") / "static" / name).read_text(encoding="utf-8")


@functools.cache
def bundle() -> str:
    """The chart library (Vega, Vega-Lite, Vega-Embed), to be embedded once."""
    import altair
    import vl_convert

    wanted = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    known = vl_convert.get_vegalite_versions()
    version = wanted if wanted in known else None
    found: str = vl_convert.javascript_bundle(None, version)  # type: ignore[arg-type]  # None: no code of ours
    return found.replace("</script", "<\\/script").replace("<!--", "<\\!--")


_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def document(title: str, header: Html, main: Html, footer: Html, specs: dict[str, Any]) -> str:
    """The whole page: one file, nothing loaded from anywhere."""
    head = join(
        [
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            el("meta", name="color-scheme", content="light dark"),
            el("title", title),
            Html(f"<style>{static('page.css')}</style>"),
        ]
    )
    scripts = Html("")
    if specs:
        data = Html(f'<script type="application/json" id="specs">{script_json(specs)}</script>')
        scripts = join([data, Html(f"<script>{bundle()}</script><script>{static('page.js')}</script>")])
    body = join(
        [
            el("a", "Skip to the results", class_="skip", href="#results"),
            el("header", header),
            el("main", main, id="results"),
            el("footer", footer),
            scripts,
        ]
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'
