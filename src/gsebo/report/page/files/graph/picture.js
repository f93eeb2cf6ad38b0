// The neighborhood of the edge that was chosen, and what is known of it.

const MOST_NODES = 60;
const MOST_COMMON = 20;
const SPACE = 64;
const picture = { drawing: null, chosen: null };
const wide = matchMedia("(min-width: 64.01rem)");
const dark = matchMedia("(prefers-color-scheme: dark)");

// Which rows of the edges each node is in, in the order of the table; made when needed.
function rowsAt(node) {
  const { source, target, count } = tables[0];
  if (!picture.starts) {
    const starts = new Uint32Array(nodes.count + 1);
    for (let row = 0; row < count; row += 1) {
      starts[source[row] + 1] += 1;
      if (target[row] !== source[row]) starts[target[row] + 1] += 1;
    }
    for (let one = 0; one < nodes.count; one += 1) starts[one + 1] += starts[one];
    const next = starts.slice();
    const rows = new Uint32Array(starts[nodes.count]);
    for (let row = 0; row < count; row += 1) {
      rows[next[source[row]]++] = row;
      if (target[row] !== source[row]) rows[next[target[row]]++] = row;
    }
    Object.assign(picture, { starts, rows });
  }
  return picture.rows.subarray(picture.starts[node], picture.starts[node + 1]);
}

function neighborsOf(node) {
  const { source, target } = tables[0];
  const found = new Set();
  for (const row of rowsAt(node)) found.add(source[row] === node ? target[row] : source[row]);
  found.delete(node);
  return found;
}

// Both ends, those who are joined to both, and then those of each, most suspicious first.
function neighborhood(table, row) {
  const ends = [table.source[row], table.target[row]];
  const [left, right] = ends.map(neighborsOf);
  const others = (set) => [...set].filter((node) => !ends.includes(node));
  const common = others(left).filter((node) => right.has(node));
  const own = [left, right].map((set) => others(set).filter((node) => !(left.has(node) && right.has(node))));
  const shared = common.slice(0, MOST_COMMON);
  const room = MOST_NODES - 2 - shared.length;
  const half = Math.floor(room / 2);
  const counts = own.map((list, side) => Math.min(list.length, Math.max(half, room - own[1 - side].length)));
  const sides = own.map((list, side) => list.slice(0, counts[side]));
  const drawn = [...new Set([...ends, ...shared, ...sides.flat()])];
  const all = common.length + own[0].length + own[1].length;
  return { ends, shared, sides, drawn, all, left: all - shared.length - sides.flat().length };
}

// The ends face each other, what they share stands between them, their own around them.
function placesOf({ ends, shared, sides }) {
  const places = new Map();
  const rows = Math.ceil(shared.length / 2);
  const apart = (rows ? 1.6 : 1.15) * SPACE;
  shared.forEach((node, number) => {
    const side = number % 2 ? 1 : -1;
    const place = Math.floor(number / 2) + 1;
    const shift = (place % 2 ? -0.35 : 0.35) * SPACE * (rows > 3 ? 1 : 0);
    places.set(node, { x: shift, y: side * place * 0.9 * SPACE });
  });
  sides.forEach((list, side) => {
    const sign = side ? 1 : -1;
    // Where the other end has nobody, there is room on its side too.
    const most = shared.length || sides[1 - side].length ? 2.7 : 4.6;
    let [ring, done] = [0, 0];
    while (done < list.length) {
      const widest = ring ? most - 0.4 : most;
      const radius = (1.6 + 0.95 * ring) * SPACE;
      const room = Math.max(Math.floor((radius * widest) / (0.72 * SPACE)), 1);
      const now = Math.min(room, list.length - done);
      for (let place = 0; place < now; place += 1) {
        // Names are wider than high: what is above each other needs more room.
        const angle = now === 1 ? 0 : (place / (now - 1) - 0.5) * Math.min(widest, now * 0.6);
        places.set(list[done + place], {
          x: sign * (apart + radius * Math.cos(angle)),
          y: 1.5 * radius * Math.sin(angle),
        });
      }
      done += now;
      ring += 1;
    }
  });
  places.set(ends[0], { x: -apart, y: 0 });
  if (ends[1] !== ends[0]) places.set(ends[1], { x: apart, y: 0 });
  return places;
}

const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function classColour(code) {
  if (code < 0) return colourOf("--grid");
  if (code < 10) return colourOf(`--class-${code}`);
  return `hsl(${Math.round(code * 137.5) % 360}, 45%, ${dark.matches ? 65 : 42}%)`;
}

function library() {
  if (!window.cytoscape) {
    const script = document.createElement("script");
    script.textContent = byId("library").textContent;
    document.head.append(script);
    byId("library").remove();
  }
  return window.cytoscape;
}

function elementsOf(table, row, around) {
  const places = placesOf(around);
  const drawn = new Set(around.drawn);
  const found = around.drawn.map((node) => ({
    data: {
      id: `n${node}`,
      node,
      label: brief(nodes.name(node), around.drawn.length > 24 ? 14 : 20),
      colour: classColour(nodes.classOf(node)),
      fill: nodes.isKnown(node) ? 1 : 0.3,
      size: around.ends.includes(node) ? 30 : 18,
    },
    position: places.get(node),
  }));
  const edges = tables[0];
  const seen = new Set();
  for (const node of around.drawn) {
    for (const each of rowsAt(node)) {
      const [source, target] = [edges.source[each], edges.target[each]];
      if (seen.has(each) || !drawn.has(source) || !drawn.has(target)) continue;
      seen.add(each);
      if (table === edges && each === row) continue;
      const level = edges.level ? edges.level.values[each] : NaN;
      found.push({
        data: {
          ...{ id: `e${each}`, row: each, source: `n${source}`, target: `n${target}` },
          doubt: Number.isNaN(level) ? 0 : doubtOf(level),
        },
      });
    }
  }
  const [source, target] = around.ends;
  const kind = table === edges ? "chosen" : "absent";
  const data = { id: "chosen", source: `n${source}`, target: `n${target}`, doubt: 0 };
  found.push({ data, classes: kind });
  return found;
}

// From 0 to 1: a share as it is, another score by where it lies among all scores.
function doubtOf(level) {
  const edges = tables[0];
  if (edges.level.kind === "share") return level;
  const { low, high } = binsOf(edges);
  return low >= 0 && high <= 1 ? level : (level - low) / (high - low);
}

function pictureStyle() {
  const [ink, paper, soft, warn, good] = ["--ink", "--paper", "--grid", "--danger", "--green"].map(colourOf);
  return [
    {
      selector: "node",
      style: {
        label: "data(label)",
        width: "data(size)",
        height: "data(size)",
        "background-color": "data(colour)",
        "background-opacity": "data(fill)",
        "border-width": 2,
        "border-color": "data(colour)",
        color: ink,
        "font-family": "system-ui, Liberation Sans, Arial, sans-serif",
        "font-size": 12,
        "min-zoomed-font-size": 7,
        "text-valign": "bottom",
        "text-margin-y": 3,
        "text-outline-color": paper,
        "text-outline-width": 2,
      },
    },
    { selector: "node:selected", style: { "border-color": ink, "border-width": 4 } },
    {
      selector: "edge",
      style: {
        width: "mapData(doubt, 0, 1, 1, 3)",
        "line-color": `mapData(doubt, 0, 1, ${soft}, ${warn})`,
        "line-opacity": "mapData(doubt, 0, 1, 0.45, 0.9)",
        "curve-style": about.directed ? "bezier" : "haystack",
        "target-arrow-shape": about.directed ? "triangle" : "none",
        "target-arrow-color": soft,
      },
    },
    {
      selector: ".chosen, .absent",
      style: {
        ...{ width: 4, "line-style": "dashed", "line-opacity": 1, "z-index": 9 },
        ...{ "line-color": warn, "target-arrow-color": warn },
        "curve-style": about.directed ? "bezier" : "straight",
      },
    },
    { selector: ".absent", style: { "line-color": good, "target-arrow-color": good } },
  ];
}

function drawPicture(table, row) {
  const around = neighborhood(table, row);
  const elements = elementsOf(table, row, around);
  picture.drawing?.destroy();
  const box = byId("picture");
  picture.drawing = library()({
    ...{ container: box, elements, style: pictureStyle(), layout: { name: "preset" } },
    ...{ userZoomingEnabled: false, boxSelectionEnabled: false, minZoom: 0.2, maxZoom: 3 },
  });
  fitPicture();
  picture.drawing.on("tap", "node", (event) => tellNode(event.target.data("node")));
  picture.drawing.on("tap", "edge", (event) => {
    if (table === tables[0] && event.target.data("row") >= 0) choose(event.target.data("row"));
  });
  const [one, other] = around.ends.map((node) => brief(nodes.name(node), 80));
  box.setAttribute("aria-label", `The neighborhood of ${one} and ${other}: ${around.drawn.length} nodes.`);
  const count = (number) => `${grouped.format(number)} neighbor${number === 1 ? "" : "s"}`;
  const common = around.shared.length ? `, ${grouped.format(around.shared.length)} drawn between them shared by both` : "";
  const cut = tables[0].count < tables[0].total ? " Only the edges of the table are known here." : "";
  const left = around.left ? ` ${grouped.format(around.left)} of them ${around.left === 1 ? "is" : "are"} left out, the least suspicious.` : "";
  byId("left-out").textContent = `Both ends have ${count(around.all)}${common}.${left}${cut}`;
  showLegend(around.drawn, table);
  listNodes(around.drawn);
}

function fitPicture() {
  const { drawing } = picture;
  if (!drawing) return;
  drawing.fit(undefined, 18);
  if (drawing.zoom() > 1.15) drawing.zoom(1.15);
  drawing.center();
  // Names of few nodes can be read at any size; those of many would cover each other.
  const few = drawing.nodes().length <= 30;
  drawing.style().selector("node").style("font-size", few ? 11 / drawing.zoom() : 12).update();
}

function showLegend(drawn, table) {
  const codes = [...new Set(drawn.map(nodes.classOf))].sort((a, b) => a - b);
  const key = (kind, words, colour) => {
    const item = document.createElement("li");
    const sign = document.createElement("span");
    sign.className = `sign ${kind}`;
    if (colour) sign.style.setProperty("--sign", colour);
    item.append(sign, words);
    return item;
  };
  const found = codes
    .filter((code) => code >= 0)
    .slice(0, 12)
    .map((code) => key("known", brief(nodes.classes[code], 30), classColour(code)));
  const some = (test) => drawn.some((node) => nodes.classOf(node) >= 0 && test(node));
  if (some((node) => !nodes.isKnown(node)) && some(nodes.isKnown)) found.push(key("guess", "class only predicted"));
  if (!some(nodes.isKnown) && found.length) found.push(key("guess", "all classes are predicted"));
  const [kind, words] = table === tables[0] ? ["chosen-line", "this edge"] : ["absent-line", "this pair, not joined"];
  byId("legend").replaceChildren(key(kind, words), ...found);
}

function listNodes(drawn) {
  const buttons = drawn.map((node) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dir = "auto";
    button.textContent = brief(nodes.name(node), 40);
    button.addEventListener("click", () => tellNode(node));
    return button;
  });
  byId("drawn-nodes").replaceChildren(...buttons);
}

function tellNode(node) {
  picture.drawing?.nodes().unselect();
  picture.drawing?.getElementById(`n${node}`).select();
  const name = document.createElement("bdi");
  name.textContent = brief(nodes.name(node), 300);
  const label = nodes.className(node);
  let words = "";
  if (label !== null) {
    const sure = nodes.confidence && !Number.isNaN(nodes.confidence[node]) ? `, ${shownShare(nodes.confidence[node])} sure` : "";
    words = `class ${brief(label, 60)} (${nodes.isKnown(node) ? "known" : `predicted${sure}`}), `;
    const guess = nodes.classes[nodes.predicted[node]];
    if (nodes.isKnown(node) && guess !== undefined && guess !== label) {
      words = `class ${brief(label, 60)} (known; predicted ${brief(guess, 60)}${sure}), `;
    }
  }
  const degree = nodes.degree[node];
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Show only its rows";
  button.addEventListener("click", () => {
    onlyNode(node);
    if (!wide.matches) closePanel();
  });
  byId("node").replaceChildren(name, `: ${words}${grouped.format(degree)} edge${degree === 1 ? "" : "s"}. `, button);
  byId("node").hidden = false;
}

function showEvidence(table, row) {
  const items = [];
  for (const column of table.evidence) {
    if (column.name === "reason") continue;
    const name = document.createElement("dt");
    name.textContent = column.title;
    const value = document.createElement("dd");
    const number = document.createElement("bdi");
    number.textContent = brief(column.text(row), 200) || "–";
    value.append(number);
    items.push(name, value);
    if (column.meaning) {
      const meaning = document.createElement("dd");
      meaning.className = "meaning";
      meaning.textContent = column.meaning;
      items.push(meaning);
    }
  }
  byId("evidence").replaceChildren(...items);
}

function openPanel(table, row) {
  picture.chosen = { table, row };
  const panel = byId("panel");
  const [one, other] = [table.source[row], table.target[row]].map((node) => {
    const name = document.createElement("bdi");
    name.textContent = brief(nodes.name(node), 60);
    return name;
  });
  byId("panel-title").replaceChildren(one, table !== tables[0] ? " ⋯ " : about.directed ? " → " : " – ", other);
  const reason = table.named("reason");
  byId("reason").textContent = reason ? reason.text(row) : "";
  byId("node").hidden = true;
  if (!panel.open) {
    // Beside the table it leaves the focus there; as a sheet it takes it.
    if (wide.matches) panel.setAttribute("open", "");
    else panel.showModal();
  }
  panel.scrollTop = 0;
  document.documentElement.classList.add("with-panel");
  showEvidence(table, row);
  drawPicture(table, row);
}

function closePanel({ focus = true } = {}) {
  const panel = byId("panel");
  if (!panel.open) return;
  if (panel.matches(":modal")) panel.close();
  else panel.removeAttribute("open");
  panelClosed();
  if (focus) byId("table").focus({ preventScroll: true });
}

function panelClosed() {
  document.documentElement.classList.remove("with-panel");
  picture.drawing?.destroy();
  Object.assign(picture, { drawing: null, chosen: null });
  markChosen();
}

function startPanel() {
  byId("close").addEventListener("click", () => closePanel());
  // By the Escape key of a sheet.
  byId("panel").addEventListener("close", () => {
    if (!picture.chosen) return;
    panelClosed();
    byId("table").focus({ preventScroll: true });
  });
  byId("panel").addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !byId("panel").matches(":modal")) closePanel();
  });
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => {
      const factor = Number(button.dataset.zoom);
      const { drawing } = picture;
      if (!drawing) return;
      const middle = { x: drawing.width() / 2, y: drawing.height() / 2 };
      if (factor) drawing.zoom({ level: drawing.zoom() * factor, renderedPosition: middle });
      else fitPicture();
    });
  }
  dark.addEventListener("change", () => {
    if (picture.chosen) drawPicture(picture.chosen.table, picture.chosen.row);
  });
  wide.addEventListener("change", () => {
    const { chosen } = picture;
    if (!chosen) return;
    closePanel({ focus: false });
    if (wide.matches) openPanel(chosen.table, chosen.row);
  });
  new ResizeObserver(() => {
    picture.drawing?.resize();
    fitPicture();
  }).observe(byId("picture"));
}
