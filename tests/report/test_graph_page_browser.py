"""The page of a graph in a real browser, at the widths of a desk and of a phone."""

import csv
import io
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas
import pytest
from tests.report.browser import OpenPage, Tab
from tests.report.graph_content import CLASSES, made_up
from tests.report.test_graph_page import HOSTILE, hostile

from gsebo.report.page.graph_page import GraphPage, graph_page

both_widths = pytest.mark.parametrize("width", [1280, 400])
both_schemes = pytest.mark.parametrize("scheme", ["light", "dark"])
# More than this at once, and a reader feels it, on a machine that does nothing else.
PATIENCE = 1500
END = ("source", "target")


@pytest.fixture(scope="module")
def content() -> GraphPage:
    return made_up()


@pytest.fixture(scope="module")
def folder(open_page: OpenPage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graph-page")


@pytest.fixture(scope="module")
def file(folder: Path, content: GraphPage) -> Path:
    return written(folder / "small.html", content)


@pytest.fixture(scope="module")
def large(folder: Path) -> Path:
    return written(folder / "large.html", made_up(100_000, 20_000))


def written(path: Path, content: GraphPage) -> Path:
    path.write_text(graph_page(content), "utf-8")
    return path


def opened(open_page: OpenPage, path: Path, **settings: Any) -> Tab:
    """A page that has come to life."""
    tab = open_page(path, **settings)
    tab.page.wait_for_selector("html.ready")
    return tab


def rows(tab: Tab, name: str = "rank") -> list[str]:
    """A column of the rows that exist, from the top."""
    cells = f".row .column-{name}"
    script = (
        "(cells) => [...document.querySelectorAll(cells)]"
        ".map((one) => [Number(one.parentElement.ariaRowIndex), one.textContent])"
        ".sort((a, b) => a[0] - b[0]).map((one) => one[1])"
    )
    return list(tab.run(script, cells))


def shown(tab: Tab) -> str:
    return str(tab.page.locator("#shown").inner_text())


def search(tab: Tab, text: str) -> None:
    """Type, and wait for the rows that follow."""
    before = shown(tab)
    tab.page.locator("#search").fill(text)
    tab.page.wait_for_function(
        "(before) => document.querySelector('#shown').textContent !== before",
        arg=before,
    )


def downloaded(tab: Tab, kind: str) -> tuple[str, str]:
    """Name and text of a file that the page makes."""
    tab.page.locator("#downloads summary").click()
    with tab.page.expect_download() as waiting:
        tab.page.locator(f"[data-download={kind}]").click()
    download = waiting.value
    return download.suggested_filename, Path(download.path()).read_bytes().decode()


@both_widths
@both_schemes
def test_it_fits_and_nothing_is_wrong(
    open_page: OpenPage, file: Path, screenshots: Path, width: int, scheme: str
) -> None:
    tab = opened(open_page, file, width=width, color_scheme=scheme)
    assert tab.fits()
    name = f"graph-{width}-{scheme}"
    tab.page.screenshot(path=screenshots / f"{name}.png", full_page=True)
    tab.page.locator(".row").nth(2).click()
    tab.page.wait_for_selector("#picture canvas")
    assert tab.fits()
    tab.page.screenshot(path=screenshots / f"{name}-edge.png")
    assert tab.complaints == []
    assert tab.requests == [file.as_uri()]
    dark = tab.style("body", "backgroundColor") == "rgb(20, 23, 27)"
    assert dark is (scheme == "dark")


@both_widths
def test_a_click_opens_the_neighborhood(
    open_page: OpenPage, file: Path, content: GraphPage, width: int
) -> None:
    tab = opened(open_page, file, width=width)
    tab.page.locator(".row").nth(3).click()
    source, target = content.ends[:, 3]
    edge = content.edges.iloc[3]
    title = tab.page.locator("#panel-title").inner_text()
    assert title == f"{edge['source']} – {edge['target']}"  # noqa: RUF001
    assert tab.page.locator("#reason").inner_text() == edge["reason"]
    pairs = {frozenset(pair) for pair in content.ends.T.tolist()}
    around = {
        node
        for end in (source, target)
        for pair in pairs
        if end in pair
        for node in pair
    }
    drawn = tab.run("picture.drawing.nodes().map((one) => one.data('node'))")
    assert set(drawn) == around
    chosen = tab.run("picture.drawing.edges('.chosen').map((one) => one.data())")
    assert [(one["source"], one["target"]) for one in chosen] == [
        (f"n{source}", f"n{target}")
    ]
    # No two nodes lie on each other.
    places = tab.run(
        "picture.drawing.nodes().map((one) => [one.position().x, one.position().y])"
    )
    apart = np.linalg.norm(np.array(places)[:, None] - np.array(places)[None], axis=-1)
    assert apart[~np.eye(len(places), dtype=bool)].min() > 20
    terms = tab.page.locator("#evidence dt").all_inner_texts()
    assert terms[:3] == ["score", "probability", "cosine"]
    assert "how alike the features" in tab.page.locator("#evidence").inner_text()
    tab.page.locator("#drawn summary").click()
    tab.page.locator("#drawn-nodes button").first.click()
    told = tab.page.locator("#node").inner_text()
    degree = int((content.ends == source).sum())
    assert told.startswith(f"{edge['source']}: class ")
    assert f"{degree} edge" in told
    tab.page.get_by_role("button", name="Show only its rows").click()
    assert shown(tab) == f"{degree} of 400 edges"
    assert tab.page.locator("#panel").is_visible() is (width == 1280)
    tab.page.locator("#node-filter").click()
    assert shown(tab) == "400 edges"
    assert tab.complaints == []


def test_many_neighbors_are_not_all_drawn(open_page: OpenPage, folder: Path) -> None:
    ends = np.stack([np.zeros(300, np.int64), np.arange(1, 301)])
    hub = made_up(300, 301, ends=ends, missing=0)
    tab = opened(open_page, written(folder / "hub.html", hub))
    assert tab.run("picture.drawing.nodes().length") == 60
    assert "241 of them are left out" in tab.page.locator("#left-out").inner_text()


def test_the_node_is_found_by_a_tap_on_the_picture(
    open_page: OpenPage, file: Path, content: GraphPage
) -> None:
    tab = opened(open_page, file)
    tab.page.locator("#picture").scroll_into_view_if_needed()
    # The picture is fitted to its place when that has been laid out.
    tab.run("nextFrame().then(nextFrame)")
    source = int(content.ends[0, 0])
    place = tab.run(f"picture.drawing.getElementById('n{source}').renderedPosition()")
    box = tab.page.locator("#picture").bounding_box()
    tab.page.mouse.click(box["x"] + place["x"], box["y"] + place["y"])
    told = tab.page.locator("#node")
    told.wait_for()
    assert told.inner_text().startswith(content.edges["source"][0])


def test_rows_are_ordered_by_any_column(
    open_page: OpenPage, file: Path, content: GraphPage
) -> None:
    tab = opened(open_page, file)
    assert rows(tab)[:3] == ["1", "2", "3"]

    def order(name: str) -> tuple[list[int], str]:
        head = tab.page.locator(f".head[data-name={name}]")
        head.get_by_role("button").click()
        return [int(one) - 1 for one in rows(tab)], head.get_attribute("aria-sort")

    for name in ("cosine", "common_neighbors"):
        down, way = order(name)
        assert way == "descending"
        values = content.edges[name].to_numpy()
        np.testing.assert_allclose(values[down], np.sort(values)[::-1][: len(down)])
        up, way = order(name)
        assert way == "ascending"
        np.testing.assert_allclose(values[up], np.sort(values)[: len(up)])
    up, way = order("source")
    assert way == "ascending"
    names = content.edges["source"]
    assert names[up].tolist() == sorted(names)[: len(up)]
    tab.page.locator("#clear").click()
    assert rows(tab)[:3] == ["1", "2", "3"]


def test_ids_that_are_numbers_are_ordered_as_numbers(
    open_page: OpenPage, folder: Path, content: GraphPage
) -> None:
    nodes = content.nodes.assign(id=np.arange(len(content.nodes)))
    tab = opened(open_page, written(folder / "numbers.html", made_up(nodes=nodes)))
    tab.page.locator(".head[data-name=target] button").click()
    found = [int(one) for one in rows(tab, "target")]
    assert found == sorted(content.ends[1])[: len(found)]


@both_widths
def test_search_and_filters(
    open_page: OpenPage, file: Path, content: GraphPage, width: int
) -> None:
    tab = opened(open_page, file, width=width)
    edges = content.edges
    search(tab, "PERSON 7 biology")
    texts = edges["source"] + " " + edges["target"] + " " + edges["reason"]
    texts += " " + edges["source_class"] + " " + edges["target_class"]
    ends = edges["source"] + "\n" + edges["target"]
    wanted = texts.str.lower().str.contains("biology") & (
        ends.str.contains("7") | edges["reason"].str.contains("7")
    )
    assert shown(tab) == f"{wanted.sum()} of 400 edges"
    assert [int(one) - 1 for one in rows(tab)][:8] == np.nonzero(wanted)[0][:8].tolist()
    search(tab, "nobody has this")
    assert shown(tab) == "0 of 400 edges"
    tab.page.get_by_role("button", name="Show everything").click()
    assert shown(tab) == "400 edges"
    tab.page.locator("#class").select_option(label="Law")
    law = (edges["source_class"] == "Law") | (edges["target_class"] == "Law")
    tab.page.wait_for_function(
        "() => document.querySelector('#shown').textContent !== '400 edges'"
    )
    assert shown(tab) == f"{law.sum()} of 400 edges"
    tab.page.locator("#low").fill("0.2")
    tab.page.locator("#high").fill("0.5")
    middle = law & edges["probability"].between(0.2, 0.5)
    tab.page.wait_for_function(f"() => view.rows.length === {middle.sum()}")
    tab.page.locator("#clear").click()
    tab.page.locator("#class").select_option("different")
    mixed = (edges["source_class"] != edges["target_class"]).sum()
    tab.page.wait_for_function(f"() => view.rows.length === {mixed}")
    assert len(CLASSES) + 3 == tab.page.locator("#class option").count()
    assert tab.complaints == []


@both_widths
def test_the_slider_says_what_to_expect(
    open_page: OpenPage, file: Path, content: GraphPage, width: int
) -> None:
    tab = opened(open_page, file, width=width)
    expected = content.expected
    assert expected is not None
    number, verdict = tab.page.locator("#first"), tab.page.locator("#verdict")
    usual = expected["first"][expected["precision"] >= 0.5].max()
    assert number.input_value() == str(usual)
    for place in (3, 7):
        row = expected.iloc[place]
        number.fill(str(int(row["first"])))
        assert f"The first {row['first']:.0f} edges" in verdict.inner_text()
        share, low, high = (
            f"{100 * row[name]:.0f} %" for name in ("precision", "low", "high")
        )
        assert f"expected precision {share} ({low} to {high})" in verdict.inner_text()
    # Between two places that are known, something between them.
    between = int(expected["first"][7] + expected["first"][8]) // 2
    number.fill(str(between))
    found = tab.run(f"expectedOf(tables[0], {between}).precision")
    assert expected["precision"][8] < found < expected["precision"][7]
    marked = tab.run("[...document.querySelectorAll('.row.marked')].length")
    assert marked == len(rows(tab))
    number.fill("3")
    assert tab.page.locator(".row.marked").count() == 3
    assert tab.page.locator("#histogram .bar-marked").count() > 0
    slider = tab.page.locator("#slider")
    slider.focus()
    tab.page.keyboard.press("ArrowRight")
    assert number.input_value() == "4"
    assert "The first 4 edges" in slider.get_attribute("aria-valuetext")
    tab.page.keyboard.press("End")
    tab.page.wait_for_function("() => tables[0].first === 400")
    tab.page.keyboard.press("Home")
    tab.page.wait_for_function("() => tables[0].first === 0")
    assert verdict.inner_text() == "No edge is marked."
    slider.fill("500")
    tab.page.wait_for_function("() => tables[0].first === 50")
    tab.page.locator("#above").check()
    tab.page.wait_for_function("() => view.rows.length === 50")


def test_charts_say_what_is_under_the_pointer(open_page: OpenPage, file: Path) -> None:
    tab = opened(open_page, file)
    chart, words = "#histogram svg", tab.page.locator("#histogram .hover")
    tab.page.locator(chart).hover()
    assert "rows" in words.inner_text() and " to " in words.inner_text()
    counts = []
    tab.page.mouse.move(0, 0)
    tab.page.locator(chart).focus()
    for _ in range(48):
        tab.page.keyboard.press("ArrowRight")
        counts.append(int(words.inner_text().split(": ")[1].split(" ")[0]))
    tab.page.locator("#search").focus()
    assert sum(counts) == 400
    curve = tab.page.locator("#curves svg").first
    curve.focus()
    tab.page.keyboard.press("ArrowRight")
    told = tab.page.locator("#curves .hover").first.inner_text()
    assert told == "Step 1: training 1.41, validation 1.63"
    assert tab.page.locator("#curves polyline").count() == 3


@both_widths
def test_downloads(
    open_page: OpenPage, file: Path, content: GraphPage, width: int
) -> None:
    tab = opened(open_page, file, width=width)
    name, text = downloaded(tab, "all")
    assert name == "edges.csv"
    header, *lines = csv.reader(io.StringIO(text))
    assert header == content.edges.columns.tolist()
    assert [line[-1] for line in lines] == content.edges["reason"].tolist()
    scores = [float(line[header.index("score")]) for line in lines]
    np.testing.assert_allclose(scores, content.edges["score"], rtol=1e-5)
    tab.page.locator("#first").fill("7")
    name, text = downloaded(tab, "marked")
    assert name == "edges-first-7.csv"
    assert len(list(csv.reader(io.StringIO(text)))) == 8
    search(tab, "person 11")
    _, text = downloaded(tab, "shown")
    found = list(csv.DictReader(io.StringIO(text)))
    assert f"{len(found)} of 400 edges" == shown(tab)
    assert all("11" in row["source"] + row["target"] + row["reason"] for row in found)
    name, text = downloaded(tab, "graph")
    assert name == "graph-without-7-edges.graphml"
    graph = networkx.parse_graphml(text)
    assert set(graph) == set(content.nodes["id"])
    kept = content.edges.iloc[7:]
    pairs = {
        frozenset(pair) for pair in zip(kept["source"], kept["target"], strict=True)
    }
    assert {frozenset(pair) for pair in networkx.Graph(graph).edges} == pairs
    assert graph.number_of_edges() == len(kept)
    labels = content.nodes.set_index("id")["label"].dropna().to_dict()
    assert networkx.get_node_attributes(graph, "label") == labels
    last = kept.iloc[-1]
    about = graph.get_edge_data(last["source"], last["target"])
    about = about if "weight" in about else about[max(about)]
    assert about["weight"] == pytest.approx(last["learned_weight"], rel=1e-5)
    assert tab.complaints == []


def test_missing_edges_have_a_tab(
    open_page: OpenPage, file: Path, content: GraphPage, screenshots: Path
) -> None:
    tab = opened(open_page, file)
    tab.page.get_by_role("tab", name="Missing edges").click()
    assert shown(tab) == "30 pairs"
    assert not tab.page.locator("#panel").is_visible()
    tab.page.locator(".row").first.click()
    assert tab.run("picture.drawing.edges('.absent').length") == 1
    tab.page.screenshot(path=screenshots / "graph-missing.png", full_page=True)
    name, text = downloaded(tab, "all")
    assert name == "missing.csv" and len(text.splitlines()) == 31
    tab.page.keyboard.press("Escape")
    tab.page.get_by_role("tab", name="Missing edges").focus()
    tab.page.keyboard.press("ArrowLeft")
    assert shown(tab) == "400 edges"
    assert tab.complaints == []


@both_widths
def test_by_keyboard_alone(open_page: OpenPage, file: Path, width: int) -> None:
    tab = opened(open_page, file, width=width)
    keyboard = tab.page.keyboard
    tab.run("closePanel({ focus: false })")
    for _ in range(40):
        keyboard.press("Tab")
        if tab.run("document.activeElement.id") == "table":
            break
    assert tab.run("document.activeElement.id") == "table"
    assert tab.style("#table", "outlineStyle") == "solid"
    for _ in range(5):
        keyboard.press("ArrowDown")
    active = tab.run(
        "document.querySelector('#table').getAttribute('aria-activedescendant')"
    )
    assert active == "row-4"
    keyboard.press("Enter")
    assert tab.page.locator("#panel").is_visible()
    assert tab.page.locator(".row.chosen .column-rank").text_content() == "5"
    keyboard.press("Escape")
    assert not tab.page.locator("#panel").is_visible()
    assert tab.run("document.activeElement.id") == "table"
    keyboard.press("End")
    assert "400" in rows(tab)
    keyboard.press("PageUp")
    keyboard.press("Home")
    assert "1" in rows(tab)
    active = tab.page.locator(".row.active .column-rank").all_text_contents()
    assert active == ["1"]


def test_roles_that_a_screen_reader_needs(open_page: OpenPage, file: Path) -> None:
    tab = opened(open_page, file)
    grid = tab.page.get_by_role("grid")
    assert grid.get_attribute("aria-rowcount") == "401"
    assert grid.get_by_role("columnheader").count() == 12
    assert grid.get_by_role("row").count() == 1 + len(rows(tab))
    nameless = tab.run(
        "[...document.querySelectorAll('button, input, select')].filter((one) =>"
        " one.checkVisibility() && !one.textContent.trim() && !one.ariaLabel"
        " && !one.labels?.length).length"
    )
    assert nameless == 0


def test_on_paper(open_page: OpenPage, file: Path, screenshots: Path) -> None:
    tab = opened(open_page, file, color_scheme="dark")
    tab.page.emulate_media(media="print")
    assert tab.style("body", "backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.page.locator("#table").is_visible()
    papers = tab.page.locator(".paper")
    assert papers.count() == 2
    assert papers.first.locator("tbody tr").count() == 50
    assert papers.first.is_visible()
    tab.page.screenshot(path=screenshots / "graph-print.png", full_page=True)
    tab.page.pdf(path=screenshots / "graph-print.pdf", format="A4")
    assert tab.complaints == []


def test_without_scripts_the_first_rows_are_there(
    open_page: OpenPage, file: Path, content: GraphPage
) -> None:
    tab = open_page(file, java_script_enabled=False)
    assert tab.page.locator(".paper").first.is_visible()
    assert not tab.page.locator("#browse").is_visible()
    assert content.edges["reason"][0] in tab.page.locator(".paper").first.inner_text()


@both_widths
def test_hostile_texts_are_texts(
    open_page: OpenPage, folder: Path, screenshots: Path, width: int
) -> None:
    path = written(folder / "hostile.html", hostile())
    tab = opened(open_page, path, width=width)
    assert tab.fits()
    assert tab.run("document.title") == HOSTILE[0]
    for place in range(len(HOSTILE)):
        tab.run(f"choose({place})")
        assert tab.fits()
    tab.page.screenshot(path=screenshots / f"graph-hostile-{width}.png")
    tab.run("closePanel()")
    assert tab.run("document.querySelectorAll('img').length") == 0
    _, text = downloaded(tab, "all")
    found = list(csv.DictReader(io.StringIO(text, newline="")))
    plain = [one.encode("utf-8", "replace").decode() for one in HOSTILE]
    assert [row["source"].replace("\ufffd", "?") for row in found] == plain
    _, text = downloaded(tab, "graph")
    graph = networkx.parse_graphml(text)
    assert graph.number_of_nodes() == len(HOSTILE)
    assert {*HOSTILE[:7]} <= set(graph)
    search(tab, "</script>")
    # As an id or reason it is in two rows.
    assert shown(tab) == f"2 of {len(HOSTILE)} edges"
    assert tab.complaints == []
    assert tab.requests[:1] == [path.as_uri()]
    assert all(one.startswith("blob:") for one in tab.requests[1:])


def test_the_first_paint_waits_for_nothing(open_page: OpenPage, folder: Path) -> None:
    path = written(folder / "paint.html", made_up(50_000, 10_000))
    tab = opened(open_page, path)
    paints = tab.run(
        "performance.getEntriesByType('paint').map((one) => one.startTime)"
    )
    assert paints and max(paints) < 2000
    assert shown(tab) == "50,000 edges"


@both_widths
def test_a_hundred_thousand_edges_stay_fluid(
    open_page: OpenPage, large: Path, width: int
) -> None:
    tab = opened(open_page, large, width=width)
    tab.run(
        "window.slow = []; new PerformanceObserver((list) =>"
        " slow.push(...list.getEntries().map((one) => one.duration)))"
        ".observe({type: 'longtask'})"
    )
    assert shown(tab) == "100,000 edges"
    for share in (0.1, 0.5, 0.99):
        tab.run(f"byId('table').scrollTop = {share} * byId('table').scrollHeight")
        tab.page.wait_for_function(
            "(share) => Math.abs(Math.min(...view.drawn.keys()) / 1e5 - share) < 0.02",
            arg=share,
        )
        assert len(rows(tab)) < 60
    assert tab.run("document.querySelectorAll('*').length") < 3000
    search(tab, "person 1999")
    assert shown(tab).endswith("of 100,000 edges")
    search(tab, "")
    tab.run("orderBy(view.table.named('cosine'), true)")
    tab.run("setFirst(60000)")
    tab.page.locator(".row").first.click()
    tab.page.wait_for_selector("#picture canvas")
    assert len(rows(tab)) < 60
    assert max(tab.run("slow"), default=0) < PATIENCE
    assert tab.complaints == []


def test_what_is_too_large_is_cut_and_said(
    open_page: OpenPage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gsebo.report.page.graph_page._MOST_ROWS", 100)
    tab = opened(open_page, written(folder / "cut.html", made_up()))
    assert shown(tab).startswith("100 edges (the first of 400")
    assert tab.page.locator("[data-download=graph]").is_disabled()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_page_with_nothing_but_edges(
    open_page: OpenPage, folder: Path, count: int
) -> None:
    nodes = pandas.DataFrame({"id": [10, 20, 30]})
    ends = np.array([[0, 0, 1], [0, 1, 2]])[:, :count]
    names = {
        name: nodes["id"].to_numpy()[end] for name, end in zip(END, ends, strict=True)
    }
    bare = GraphPage("Bare", (), pandas.DataFrame(names), ends, nodes, directed=True)
    tab = opened(open_page, written(folder / f"bare-{count}.html", bare), width=900)
    assert tab.fits()
    assert shown(tab) == ("1 edge" if count == 1 else f"{count} edges")
    for row in range(count):
        # The first is a loop.
        tab.run(f"choose({row})")
        assert tab.run("picture.drawing.edges('.chosen').length") == 1
    tab.run("closePanel()")
    tab.page.locator("#first").fill("0")
    _, text = downloaded(tab, "graph")
    graph = networkx.parse_graphml(text)
    assert graph.is_directed()
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (3, count)
    assert tab.complaints == []
