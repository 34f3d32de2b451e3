"""How pages are made of templates: every text escaped, one style, nothing asked of the network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Template


def template(folder: Path) -> Template:
    """The `page.html.jinja` of *folder*; `style` in it is the style of all pages."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"code": _code, "data": _data, "words": _words}
    environment.globals["style"] = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return environment.get_template("page.html.jinja")


def _code(text: str) -> str:
    """A script or a style, in which nothing ends the element that it stands in."""
    from markupsafe import Markup

    return Markup(text.replace("</", "<\\/").replace("<!--", "<\\!--"))


def _words(text: str) -> str:
    """A text in which commands stand in backticks."""
    from markupsafe import Markup, escape

    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _data(text: str) -> str:
    """JSON, in which nothing can look like an element."""
    from markupsafe import Markup

    return Markup(text.replace("<", "\\u003c"))
