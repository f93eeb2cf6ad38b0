// The threshold, the tabs, and the order in which the page comes to life.

const STEPS = 1000;
const tables = [];
let drawHistogram = () => {};

// --- threshold ----------------------------------------------------------------------

// Most of the slider is for the first rows, which matter most.
const firstAt = (place, count) => Math.round(count * (place / STEPS) ** 3);
const placeOf = (first, count) => Math.round(STEPS * Math.cbrt(count ? first / count : 0));

function verdictOf(table) {
  const { first } = table;
  const what = table.key === "edges" ? "edge" : "pair";
  if (!first) return `No ${what} is marked.`;
  const level = table.level;
  const at = level ? level.values[first - 1] : NaN;
  const down = Number.isNaN(at) ? "" : ` (${level.title} down to ${level.text(first - 1)})`;
  const head = `${first === 1 ? `The first ${what}` : `The first ${grouped.format(first)} ${what}s`}${down}`;
  const found = expectedOf(table, first);
  if (!found || found.precision === null) {
    if (table.key !== "edges") return `${head}.`;
    const doubt = first === 1 ? "whether it is wrong" : "how many of them are wrong";
    return `${head}: ${doubt} is not known, because nothing was calibrated.`;
  }
  const limits = found.low === null || found.high === null ? "" : ` (${shownShare(found.low)} to ${shownShare(found.high)})`;
  const beyond = found.beyond ? `, or less: it is known up to ${grouped.format(table.expected.first.at(-1))}` : "";
  return `${head}: expected precision ${shownShare(found.precision)}${limits}${beyond}.`;
}

function setFirst(first, { slide = true } = {}) {
  const { table } = view;
  table.first = Math.min(Math.max(Math.round(first) || 0, 0), table.count);
  const slider = byId("slider");
  if (slide) slider.value = placeOf(table.first, table.count);
  const verdict = verdictOf(table);
  slider.setAttribute("aria-valuetext", verdict);
  if (document.activeElement !== byId("first")) byId("first").value = table.first;
  byId("verdict").textContent = verdict;
  byId("first-unit").textContent = `of ${grouped.format(table.count)} ${table.key === "edges" ? "edges" : "pairs"}`;
  markRows();
  drawHistogram();
  if (byId("above").checked) updateSoon();
}

const updateSoon = later(() => update(), 100);

// As many as are more likely wrong than right; where nobody knows, some.
function usualFirst(table) {
  const known = table.expected;
  if (known) {
    const enough = known.first.filter((_, place) => known.precision[place] >= 0.5);
    return enough.length ? Math.max(...enough) : 0;
  }
  if (table.level?.kind === "share") {
    let first = 0;
    while (first < table.count && table.level.values[first] >= 0.5) first += 1;
    return first;
  }
  return Math.min(50, Math.ceil(table.count / 10));
}

function startThreshold() {
  const [slider, number] = [byId("slider"), byId("first")];
  let frame = 0;
  slider.addEventListener("input", () => {
    // Many moves between two frames count as one.
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      setFirst(firstAt(Number(slider.value), view.table.count), { slide: false });
    });
  });
  slider.addEventListener("keydown", (event) => {
    const { first } = view.table;
    const large = Math.max(Math.round(first / 10), 10);
    const goal = {
      ...{ ArrowRight: first + 1, ArrowUp: first + 1, ArrowLeft: first - 1, ArrowDown: first - 1 },
      ...{ PageUp: first + large, PageDown: first - large },
    }[event.key];
    if (goal === undefined) return;
    event.preventDefault();
    setFirst(goal);
  });
  number.addEventListener("input", () => setFirst(number.valueAsNumber));
  number.addEventListener("blur", () => (number.value = view.table.first));
  drawHistogram = chart(byId("histogram"), 108, "Histogram of the scores", (element, width, height) => {
    byId("histogram").hidden = !binsOf(view.table);
    if (!binsOf(view.table)) return { stops: [], tell: () => "", silent: "" };
    return histogram(element, width, height, view.table);
  });
}

// --- tabs ---------------------------------------------------------------------------

function showTab(table) {
  for (const tab of byId("tabs").children) {
    const own = tab.dataset.key === table.key;
    tab.setAttribute("aria-selected", own);
    tab.tabIndex = own ? 0 : -1;
  }
  document.documentElement.classList.toggle("pairs", table.key !== "edges");
  showTable(table);
  byId("first").max = table.count;
  const graph = byId("downloads").querySelector("[data-download=graph]");
  graph.hidden = table.key !== "edges";
  setFirst(table.first);
}

function startTabs() {
  const tabs = tables.map((table) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", "table");
    tab.dataset.key = table.key;
    tab.append(table.title, " ");
    const count = document.createElement("span");
    count.className = "count";
    count.textContent = grouped.format(table.total);
    tab.append(count);
    tab.addEventListener("click", () => showTab(table));
    return tab;
  });
  byId("tabs").replaceChildren(...tabs);
  byId("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = tabs.indexOf(document.activeElement);
    if (!step || at < 0) return;
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
}

// --- start --------------------------------------------------------------------------

const nextFrame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

async function start() {
  // What is there already is painted before anything is unpacked.
  await nextFrame();
  await unpack();
  nodes.ready();
  tables.push(...about.tables.map(makeTable));
  byId("waiting").hidden = true;
  byId("threshold").hidden = byId("browse").hidden = false;
  view.table = tables[0];
  for (const table of tables) table.first = usualFirst(table);
  startTable();
  startPanel();
  startDownloads();
  startTabs();
  startThreshold();
  showTab(tables[0]);
  showTraining(about.history);
  await nextFrame();
  document.documentElement.classList.add("ready");
  if (wide.matches && tables[0].count) choose(0);
}

start().catch((error) => {
  byId("waiting").hidden = false;
  byId("waiting").textContent =
    "This browser cannot unpack the table; a newer one can. The first rows stand below.";
  document.documentElement.classList.remove("script");
  throw error;
});
