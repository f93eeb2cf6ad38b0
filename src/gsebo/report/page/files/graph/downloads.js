// Files that are made here of what the page holds: CSV of rows, GraphML of the graph.

const PIECE = 5000;

function save(parts, name, type) {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // Only after the browser has begun to read it.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

const csvCell = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function csvOf(table, rows) {
  const line = (cells) => `${cells.map(csvCell).join(",")}\r\n`;
  const parts = [line(table.inFiles.map((column) => column.name))];
  let piece = "";
  rows.forEach((row, place) => {
    piece += line(table.inFiles.map((column) => column.plain(row)));
    if (place % PIECE === PIECE - 1) {
      parts.push(piece);
      piece = "";
    }
  });
  return [...parts, piece];
}

const SIGNS = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;" };
// What no XML may hold, not even escaped.
const FORBIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]|\p{Surrogate}/gu;

const xml = (text) => text.replace(FORBIDDEN, "\ufffd").replace(/[&<>"\n\r\t]/g, (sign) => SIGNS[sign]);

// An id that had to be changed gets the number of its node, so that no two are the same.
function xmlId(node) {
  const id = nodes.id(node);
  return id.search(FORBIDDEN) < 0 ? xml(id) : `${xml(id)}#${node}`;
}

// The graph without the marked edges, with what is known of nodes and edges.
function graphmlOf(table) {
  const named = ["learned_weight", "edge_weight", "probability", "score"].map(table.named);
  const columns = named.filter(Boolean);
  const weight = table.named("learned_weight") ?? table.named("edge_weight");
  const key = (id, of, kind) =>
    `<key id="${id}" for="${of}" attr.name="${id}" attr.type="${kind}"/>\n`;
  let piece = '<?xml version="1.0" encoding="UTF-8"?>\n';
  piece += '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n';
  piece += key("label", "node", "string") + key("predicted", "node", "string");
  if (weight) piece += key("weight", "edge", "double");
  for (const column of columns) piece += key(column.name, "edge", "double");
  piece += `<graph edgedefault="${about.directed ? "directed" : "undirected"}">\n`;
  const parts = [];
  const data = (id, text) => `<data key="${id}">${text}</data>`;
  const finish = (place) => {
    if (place % PIECE !== PIECE - 1) return;
    parts.push(piece);
    piece = "";
  };
  const classes = nodes.classes.map(xml);
  for (let node = 0; node < nodes.count; node += 1) {
    piece += `<node id="${xmlId(node)}">`;
    if (nodes.label[node] >= 0) piece += data("label", classes[nodes.label[node]]);
    if (nodes.predicted[node] >= 0) piece += data("predicted", classes[nodes.predicted[node]]);
    piece += "</node>\n";
    finish(node);
  }
  for (let row = table.first; row < table.count; row += 1) {
    piece += `<edge source="${xmlId(table.source[row])}" target="${xmlId(table.target[row])}">`;
    const known = (column) => !Number.isNaN(column.values[row]);
    if (weight && known(weight)) piece += data("weight", weight.plain(row));
    for (const column of columns) if (known(column)) piece += data(column.name, column.plain(row));
    piece += "</edge>\n";
    finish(row);
  }
  return [...parts, `${piece}</graph>\n</graphml>\n`];
}

function startDownloads() {
  const counted = (count) => Uint32Array.from({ length: count }, (_, row) => row);
  const csv = (rows, name) => save(csvOf(view.table, rows), name, "text/csv;charset=utf-8");
  const actions = {
    all: () => csv(counted(view.table.count), `${view.table.key}.csv`),
    marked: () => csv(counted(view.table.first), `${view.table.key}-first-${view.table.first}.csv`),
    shown: () => csv(view.rows, `${view.table.key}-shown.csv`),
    graph: () => {
      const edges = tables[0];
      save(graphmlOf(edges), `graph-without-${edges.first}-edges.graphml`, "application/xml");
    },
  };
  const menu = byId("downloads");
  for (const button of menu.querySelectorAll("[data-download]")) {
    button.addEventListener("click", () => {
      actions[button.dataset.download]();
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  }
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("pointerdown", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  if (tables[0].count < tables[0].total) {
    const button = menu.querySelector("[data-download=graph]");
    button.disabled = true;
    button.title = "This page does not hold all edges of the graph.";
  }
}
