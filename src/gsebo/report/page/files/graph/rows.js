// The table: which rows are shown in which order, of which only those in sight exist.

const narrow = matchMedia("(max-width: 40rem)");
const SPARE = 8;
const LONGEST = 160;
const view = {
  table: null,
  rows: new Uint32Array(0), // Those that match, in their order.
  column: null, // What they are ordered by; none: as given.
  down: false,
  node: -1, // Only the rows of this one.
  active: -1, // Place among those shown that the arrow keys are at.
  drawn: new Map(),
};

const rowHeight = () => (narrow.matches ? 88 : 36);

// --- which rows ---------------------------------------------------------------------

function matches(table, words, row, hits) {
  return words.every((_, number) => {
    const { ofNodes, ofTexts } = hits[number];
    if (ofNodes[table.source[row]] || ofNodes[table.target[row]]) return true;
    return ofTexts.some(({ codes, found }) => codes[row] >= 0 && found[codes[row]]);
  });
}

// For each word which ids and which texts hold it; there are fewer of them than rows.
function hitsOf(table, words) {
  const texts = table.evidence.filter((column) => column.kind === "text");
  return words.map((word) => ({
    ofNodes: Uint8Array.from(nodes.lowered(), (id) => id.includes(word)),
    ofTexts: texts.map((column) => ({
      codes: column.codes,
      found: Uint8Array.from(column.lowered(), (text) => text.includes(word)),
    })),
  }));
}

function matchesClass(table, wanted) {
  if (wanted === "") return () => true;
  const ends = (row) => [nodes.classOf(table.source[row]), nodes.classOf(table.target[row])];
  if (wanted === "different" || wanted === "same") {
    return (row) => {
      const [one, other] = ends(row);
      return one >= 0 && other >= 0 && (one === other) === (wanted === "same");
    };
  }
  const code = Number(wanted);
  return (row) => ends(row).includes(code);
}

function matchesRange(table) {
  const column = table.named(byId("range-column").value);
  const [low, high] = ["low", "high"].map((id) => byId(id).valueAsNumber);
  if (!column || (Number.isNaN(low) && Number.isNaN(high))) return () => true;
  const { values } = column;
  return (row) => !Number.isNaN(values[row]) && !(values[row] < low) && !(values[row] > high);
}

function wantedRows() {
  const { table } = view;
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = hitsOf(table, words);
  const ofClass = matchesClass(table, byId("class").value);
  const inRange = matchesRange(table);
  const last = byId("above").checked ? table.first : table.count;
  const found = new Uint32Array(last);
  let count = 0;
  for (let row = 0; row < last; row += 1) {
    if (view.node >= 0 && table.source[row] !== view.node && table.target[row] !== view.node) continue;
    if (!ofClass(row) || !inRange(row)) continue;
    if (words.length && !matches(table, words, row, hits)) continue;
    found[count] = row;
    count += 1;
  }
  return found.subarray(0, count);
}

function ordered(rows) {
  const { column, down } = view;
  if (!column) return rows;
  column.sortKeys ??= column.keys();
  const keys = column.sortKeys;
  const sign = down ? -1 : 1;
  // What is not known comes last, whatever the direction.
  return rows.slice().sort((a, b) => {
    const [one, other] = [keys[a], keys[b]];
    if (one !== one || other !== other) return (one !== one) - (other !== other) || a - b;
    return sign * (one - other) || a - b;
  });
}

function update() {
  const { table } = view;
  view.rows = ordered(wantedRows());
  view.active = Math.min(view.active, view.rows.length - 1);
  const [shown, all] = [view.rows.length, table.count].map((one) => grouped.format(one));
  const what = `${table.key === "edges" ? "edge" : "pair"}${table.count === 1 ? "" : "s"}`;
  const cut = table.total > table.count ? ` (the first of ${grouped.format(table.total)}; the others are not in this page)` : "";
  byId("shown").textContent = view.rows.length === table.count ? `${all} ${what}${cut}` : `${shown} of ${all} ${what}${cut}`;
  byId("nothing").hidden = view.rows.length > 0;
  const chip = byId("node-filter");
  chip.hidden = view.node < 0;
  if (view.node >= 0) chip.textContent = `only of ${brief(nodes.name(view.node), 40)} ×`;
  byId("table").setAttribute("aria-rowcount", view.rows.length + 1);
  redraw();
}

function onlyNode(node) {
  view.node = node;
  byId("table").scrollTop = 0;
  update();
}

// --- rows on screen -----------------------------------------------------------------

function redraw() {
  for (const element of view.drawn.values()) element.remove();
  view.drawn.clear();
  byId("rows").style.height = `${view.rows.length * rowHeight()}px`;
  drawRows();
}

function drawRows() {
  const box = byId("table");
  const height = rowHeight();
  const top = Math.max(box.scrollTop - (narrow.matches ? 0 : byId("heads").offsetHeight), 0);
  const first = Math.max(Math.floor(top / height) - SPARE, 0);
  const last = Math.min(Math.ceil((top + box.clientHeight) / height) + SPARE, view.rows.length);
  for (const [place, element] of view.drawn) {
    if (place >= first && place < last) continue;
    element.remove();
    view.drawn.delete(place);
  }
  const fresh = document.createDocumentFragment();
  for (let place = first; place < last; place += 1) {
    if (view.drawn.has(place)) continue;
    const element = drawRow(place, height);
    view.drawn.set(place, element);
    fresh.append(element);
  }
  byId("rows").append(fresh);
}

function drawRow(place, height) {
  const { table } = view;
  const row = view.rows[place];
  const element = document.createElement("div");
  element.className = "row";
  element.id = `row-${place}`;
  element.setAttribute("role", "row");
  element.setAttribute("aria-rowindex", place + 2);
  element.style.transform = `translateY(${place * height}px)`;
  element.style.height = `${height}px`;
  element.classList.toggle("marked", row < table.first);
  element.classList.toggle("active", place === view.active);
  const chosen = picture.chosen && picture.chosen.table === table && picture.chosen.row === row;
  element.classList.toggle("chosen", Boolean(chosen));
  element.setAttribute("aria-selected", Boolean(chosen));
  for (const column of table.onScreen) element.append(drawCell(column, row));
  return element;
}

function drawCell(column, row) {
  const cell = document.createElement("div");
  cell.setAttribute("role", "gridcell");
  cell.className = `cell ${column.kind} column-${safeName(column)}`;
  const text = brief(column.text(row), LONGEST);
  if (column.kind === "node") {
    const node = column.ends[row];
    const sign = document.createElement("span");
    sign.className = `sign ${nodes.isKnown(node) ? "known" : "guess"}`;
    if (nodes.classOf(node) >= 0) sign.style.setProperty("--sign", classColourCached(nodes.classOf(node)));
    else sign.className = "sign none";
    cell.append(sign);
  }
  if (column.kind === "share") {
    const value = column.values[row];
    cell.style.setProperty("--share", Number.isNaN(value) ? 0 : value);
  }
  const words = document.createElement("bdi");
  words.textContent = text;
  cell.append(words);
  if (text.length > 14) cell.title = text;
  return cell;
}

const safeName = (column) => (/^[a-z_]+$/.test(column.name) ? column.name : "other");
const colours = new Map();

function classColourCached(code) {
  if (!colours.has(code)) colours.set(code, classColour(code));
  return colours.get(code);
}

// Marks and the chosen row change while the rows stay.
function markRows() {
  for (const [place, element] of view.drawn) {
    element.classList.toggle("marked", view.rows[place] < view.table.first);
  }
}

function markChosen() {
  const { chosen } = picture;
  for (const [place, element] of view.drawn) {
    const is = chosen !== null && chosen.table === view.table && chosen.row === view.rows[place];
    element.classList.toggle("chosen", is);
    element.setAttribute("aria-selected", is);
  }
}

function setActive(place, { scroll = true } = {}) {
  view.active = place;
  for (const [at, element] of view.drawn) element.classList.toggle("active", at === place);
  if (scroll) reveal(place);
  byId("table").setAttribute("aria-activedescendant", `row-${place}`);
}

function reveal(place) {
  const box = byId("table");
  const height = rowHeight();
  const head = narrow.matches ? 0 : byId("heads").offsetHeight;
  const top = place * height;
  if (top < box.scrollTop) box.scrollTop = top;
  const bottom = top + height + head;
  if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
  drawRows();
  view.drawn.get(place)?.classList.add("active");
}

function choose(row) {
  openPanel(view.table, row);
  markChosen();
}

// --- heads, order, keys -------------------------------------------------------------

function orderBy(column, down) {
  view.column = column.kind === "rank" && !down ? null : column;
  view.down = down;
  for (const head of byId("heads").children) {
    const own = head.dataset.name === column.name;
    head.setAttribute("aria-sort", own ? (down ? "descending" : "ascending") : "none");
  }
  byId("order").value = `${column.name} ${down ? "down" : "up"}`;
  byId("table").scrollTop = 0;
  update();
}

function drawHeads() {
  const { table } = view;
  const heads = table.onScreen.map((column) => {
    const head = document.createElement("div");
    head.setAttribute("role", "columnheader");
    head.className = `cell head ${column.kind} column-${safeName(column)}`;
    head.dataset.name = column.name;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.title;
    if (column.meaning) button.title = column.meaning;
    button.addEventListener("click", () => {
      const again = (view.column ?? table.onScreen[0]) === column;
      // Of numbers the largest are looked for, of names and places the first.
      const numeric = column.kind === "number" || column.kind === "share";
      orderBy(column, again ? !view.down : numeric);
    });
    head.append(button);
    return head;
  });
  byId("heads").replaceChildren(...heads);
  layOut();
  byId("table").setAttribute("aria-colcount", table.onScreen.length);
  const choices = table.onScreen.flatMap((column) => {
    const ways = column.kind === "rank" ? [["up", "as given"]] : [
      ["down", `${column.title}, highest first`],
      ["up", `${column.title}, lowest first`],
    ];
    return ways.map(([way, words]) => new Option(words, `${column.name} ${way}`));
  });
  byId("order").replaceChildren(...choices);
}

// Room for most of the ids, judged by the first of them.
function idWidth(column) {
  const lengths = [...column.ends.subarray(0, 200)].map((node) => nodes.id(node).length);
  lengths.sort((a, b) => a - b);
  return Math.min((lengths[Math.floor(lengths.length * 0.95)] ?? 0) * 8 + 44, 200);
}

// Every row is laid out by itself, so that widths have to be numbers.
function layOut() {
  const letter = 8.2;
  const least = (column) => {
    if (column.name === "reason") return 270;
    const title = column.title.length * letter + 36;
    const usual = { rank: 62, node: 100, share: 84, number: 78, text: 112 }[column.kind];
    return Math.max(usual, Math.min(title, 190), column.kind === "node" ? idWidth(column) : 0);
  };
  const share = (column) => (column.name === "reason" ? 4 : column.kind === "node" ? 1 : 0);
  const columns = view.table.onScreen;
  const widths = columns.map(least);
  const sum = (numbers) => numbers.reduce((one, other) => one + other, 0);
  const spare = Math.max(byId("table").clientWidth - sum(widths), 0);
  const shares = columns.map(share);
  const each = spare / sum(shares);
  const found = widths.map((width, place) => width + each * shares[place]);
  const { style } = byId("table");
  style.setProperty("--columns", found.map((width) => `${width}px`).join(" "));
  style.setProperty("--total", `${Math.floor(sum(found))}px`);
}

function pressed(event) {
  const box = byId("table");
  if (event.target !== box) return;
  const page = Math.max(Math.floor(box.clientHeight / rowHeight()) - 2, 1);
  const last = view.rows.length - 1;
  const goal = {
    ArrowDown: view.active + 1,
    ArrowUp: view.active - 1,
    PageDown: view.active + page,
    PageUp: view.active - page,
    Home: 0,
    End: last,
  }[event.key];
  if (goal !== undefined && last >= 0) {
    event.preventDefault();
    setActive(Math.min(Math.max(goal, 0), last));
  } else if ((event.key === "Enter" || event.key === " ") && view.active >= 0) {
    event.preventDefault();
    choose(view.rows[view.active]);
  } else if (event.key === "Escape") {
    closePanel();
  }
}

function later(action, milliseconds) {
  let timer = 0;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, milliseconds);
  };
}

function showTable(table) {
  view.table = table;
  Object.assign(view, { column: null, down: false, node: -1, active: -1 });
  closePanel({ focus: false });
  drawHeads();
  const range = table.numeric.map((column) => new Option(column.title, column.name));
  byId("range-column").replaceChildren(...range);
  document.querySelector(".range").hidden = !table.numeric.length;
  byId("table").setAttribute("aria-label", `${table.title}, most suspicious first`);
  showEverything();
}

function showEverything() {
  byId("filters").reset();
  byId("range-column").value = view.table.level?.name ?? view.table.numeric[0]?.name ?? "";
  view.node = -1;
  orderBy(view.table.onScreen[0], false);
}

function startTable() {
  const box = byId("table");
  const choices = [new Option("any", "")];
  if (nodes.classes.length > 1) {
    choices.push(new Option("two different ones", "different"), new Option("twice the same", "same"));
  }
  nodes.classes.forEach((name, code) => choices.push(new Option(brief(name, 60), String(code))));
  byId("class").replaceChildren(...choices);
  byId("class-field").hidden = !nodes.classes.length;
  box.addEventListener("scroll", drawRows, { passive: true });
  box.addEventListener("keydown", pressed);
  byId("rows").addEventListener("click", (event) => {
    const element = event.target.closest(".row");
    if (!element) return;
    const place = Number(element.id.slice("row-".length));
    setActive(place, { scroll: false });
    choose(view.rows[place]);
  });
  const soon = later(() => {
    box.scrollTop = 0;
    update();
  }, 150);
  for (const id of ["search", "low", "high"]) byId(id).addEventListener("input", soon);
  for (const id of ["class", "range-column", "above"]) byId(id).addEventListener("change", soon);
  byId("order").addEventListener("change", () => {
    const [name, way] = byId("order").value.split(/ (?=up$|down$)/);
    orderBy(view.table.onScreen.find((column) => column.name === name), way === "down");
  });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", showEverything);
  byId("clear-too").addEventListener("click", showEverything);
  byId("node-filter").addEventListener("click", () => onlyNode(-1));
  dark.addEventListener("change", () => {
    colours.clear();
    redraw();
  });
  narrow.addEventListener("change", redraw);
  new ResizeObserver(() => {
    layOut();
    drawRows();
  }).observe(box);
}
