"""What mkdocs asks while it builds the site: pages beside docs/, and links out of it.

The pages of the repository's root (architecture, contributing, changelog) become pages of the
site; the reference of the Python library is made from docstrings, and `make docs` has put those of
commands and trace records into build/pages (`bench.site.pages`). A link to a file of the repository
that is no page is left as the file's name: the site stands without the repository.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
"""Text, path and anchor of a link that is no picture and no anchor of its own page."""

LIBRARY: Final = """# The Python library

What `import canopy` gives; the [guide](../guide/python.md) has examples. `canopy.trio` and
`canopy.aio` have the same, awaited.

::: canopy.client.client.connect
::: canopy.client.client.Client
::: canopy.client.consumer.Subscription
::: canopy.client.consumer.Gathering
::: canopy.client.streams.producer.Producer
::: canopy.client.streams.reading.Reading
::: canopy.client.streams.membership.Member
::: canopy.client.streams.transaction.Transaction
::: canopy.client.publication.PublishResult
::: canopy.client.streams.producer.AppendResult
::: canopy.client.streams.positions.Positions
::: canopy.client.notices
::: canopy.client.errors
::: overlay.client.Event
::: overlay.client.Draft
::: overlay.client.Delivery
::: overlay.client.StreamEvent
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=text.replace("](docs/", "](")))
    files.append(File.generated(config, "reference/python.md", content=LIBRARY))
    for path in sorted((ROOT / "build" / "pages").glob("*.md")):
        text = path.read_text(encoding="utf-8")
        files.append(File.generated(config, f"reference/{path.name}", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Point links to the root's pages at those of the site, and take links to other files out."""
    here = Path(page.file.src_uri).parent

    def placed(found: re.Match[str]) -> str:
        text, path, anchor = found[1], found[2], found[3] or ""
        if "://" in path or path.startswith("mailto:"):
            return found[0]
        parts: list[str] = []
        for part in (*here.parts, *path.split("/")):
            if part == ".." and parts and parts[-1] != "..":
                parts.pop()
            elif part != ".":
                parts.append(part)
        target = "/".join(parts)
        if files.get_file_from_path(target) is not None:
            return found[0]
        name = target.removeprefix("../")
        beside = f"reference/{Path(name).name}"  # of a page that lies beside code or tests
        if name.endswith(".md") and files.get_file_from_path(beside) is not None:
            return f"[{text}]({'../' * len(here.parts)}{beside}{anchor})"
        if files.get_file_from_path(name) is not None:
            up = "../" * len(here.parts)
            return f"[{text}]({up}{name}{anchor})"
        return text if text.startswith("`") else f"{text} (`{name}`)"

    return LINK.sub(placed, markdown)
