"""Every question of the page of questions is answered where it says."""

import re
from pathlib import Path

import pytest

from docs.headings import DOCS, LINK, anchors

PAGE = DOCS / "questions.md"


def questions() -> list[tuple[str, str]]:
    """Each question with its answer."""
    parts = re.split(r"^#{2,3} +", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    found = []
    for part in parts:
        heading, _, answer = part.partition("\n")
        if answer.strip():
            found.append((heading.strip(), answer.strip()))
    return found


QUESTIONS = questions()


def test_there_are_enough_and_no_two_are_the_same() -> None:
    assert len(QUESTIONS) >= 40
    asked = ["".join(re.findall(r"\w", question.lower())) for question, _ in QUESTIONS]
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize(
    ("question", "answer"), QUESTIONS, ids=[question for question, _ in QUESTIONS]
)
def test_each_is_answered_where_it_says(question: str, answer: str) -> None:
    assert question.endswith("?")
    assert len(LINK.sub("", answer).split()) >= 3, "a link is no answer"
    links = [target for _, target in LINK.findall(answer)]
    assert any("#" in target for target in links)
    for target in links:
        assert not target.startswith(("http:", "https:", "/")), target
        path, mark, anchor = target.partition("#")
        page = (PAGE.parent / path).resolve()
        assert page.is_file(), target
        if mark:
            assert anchor in anchors(page), f"{target}: {sorted(anchors(page))}"


def test_anchors_are_those_of_the_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# The `.npz` format\n\n```sh\n# no heading\n```\n\n"
        '## `"trust"`: the default\n\n'
        "## networkx, in [five](other.md) lines\n\n### Limits ##\n\n## Limits\n"
    )
    assert set(anchors(page)) == {
        "the-npz-format",
        "trust-the-default",
        "networkx-in-five-lines",
        "limits",
    }
