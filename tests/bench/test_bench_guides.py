"""A guide passes only if each of its blocks does, and nothing is left running."""

from __future__ import annotations

import pytest

from bench.processes import guides
from harness import postgres

PAGE = """\
Text.

<!-- not run: it takes two machines -->
```sh
false
```

```bash
greeting=hello
```

```python
import pathlib
pathlib.Path("said").write_text("it's")
```

```sh
echo $greeting >> said
{}
```
"""


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guides, "READING", 0.0)


def test_blocks_are_found_with_their_lines_and_reasons() -> None:
    found = guides.blocks(PAGE)
    assert [(each.line, each.why) for each in found] == [
        (5, "it takes two machines"),
        (9, ""),
        (13, ""),
        (18, ""),
    ]
    assert found[1].text == "greeting=hello\n"


def test_a_page_passes_if_all_of_its_blocks_do() -> None:
    assert guides.run("page", PAGE.format("grep -q hello said && canopy --version")) == ""


def test_a_command_that_fails_and_a_process_that_is_left_are_said() -> None:
    wrong = guides.run("page", PAGE.format("echo so far; false; echo not reached"))
    assert wrong.startswith("exit code 1")
    assert "so far" in wrong
    assert "reached" not in wrong
    assert guides.run("page", PAGE.format("sleep 60 &")).startswith("1 processes are left")


def test_a_block_that_takes_a_server_is_not_run_where_none_can_be_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nowhere() -> None:
        raise postgres.NoServerError("no PostgreSQL here")

    monkeypatch.setattr(postgres, "Server", nowhere)
    page = "<!-- run with PostgreSQL -->\n```bash\nfalse\n```\n```bash\ntrue\n```\n"
    assert guides.run("page", page) == ""
    assert capsys.readouterr().out == "  line 3 is not run: no PostgreSQL here\n"


def test_most_guides_have_blocks_that_are_run() -> None:
    runs = [
        name
        for name, path in guides.pages().items()
        if any(not each.why for each in guides.blocks(path.read_text(encoding="utf-8")))
    ]
    assert set(guides.pages()) - set(runs) == {"extending", "release"}
