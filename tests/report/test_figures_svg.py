"""Drawings that stand in one page: names, colours, and nothing of the machine."""

import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes

from gsebo.report import Summary
from gsebo.report.figures.drawing import draw_svg
from gsebo.report.figures.series import COLOURS, INK, method_style, points


def paint(axes: Axes) -> None:
    line = [Summary(50.0, 1.0, 3), None, Summary(70.0, 2.0, 3)]
    points(axes, range(3), line, method_style("gsebo"), "gsebo")
    axes.set_xlabel("a < b & c")


def drawn(name: str = "one", title: str = 'what "it" <shows>') -> str:
    return draw_svg(name, title, paint, height=200)


def test_it_is_well_formed_and_says_what_it_shows() -> None:
    root = ElementTree.fromstring(drawn())
    assert root.get("aria-label") == root[0].text == 'what "it" <shows>'
    assert "a < b & c" in {element.text for element in root.iter()}


def test_no_style_and_no_name_that_another_panel_could_have() -> None:
    found = [ElementTree.fromstring(drawn(name)) for name in ("one", "two")]
    names = [{e.get("id") for e in root.iter()} - {None} for root in found]
    assert names[0] and names[1]
    assert not names[0] & names[1]
    for root, own in zip(found, names, strict=True):
        assert not any("style" in element.attrib for element in root.iter())
        text = ElementTree.tostring(root, encoding="unicode")
        assert set(re.findall(r'(?:href="|url\()#([\w-]+)', text)) == own


def test_tags_are_attributes_that_the_filter_reads() -> None:
    root = ElementTree.fromstring(drawn())
    assert sum(element.get("data-method") == "gsebo" for element in root.iter()) > 1


def test_every_colour_follows_the_page() -> None:
    used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', drawn()))
    assert used <= {*COLOURS.values(), "none"}
    assert COLOURS[INK] == "currentColor" in used


def test_the_same_every_time_whatever_the_reader_has_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = drawn()
    monkeypatch.setitem(mpl.rcParams, "font.size", 40)
    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "red")
    assert drawn() == before
    assert str(tmp_path.anchor) + "tmp" not in before
    assert "<!--" not in before


def test_what_is_not_known_is_not_drawn() -> None:
    def empty(axes: Axes) -> None:
        points(axes, range(2), [None, None], method_style("gsebo"), "no")

    assert "data-method" not in draw_svg("none", "nothing", empty, height=100)
