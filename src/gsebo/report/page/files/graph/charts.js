// The histogram and the curves of the training, with what is under the pointer.

const SVG = "http://www.w3.org/2000/svg";
const BINS = 48;
const MARGIN = { left: 44, right: 10, top: 8, bottom: 24 };

function draw(parent, name, attributes = {}, text = "") {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text) element.textContent = text;
  parent.append(element);
  return element;
}

// Some round numbers from low to high.
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) {
    found.push(Number(at.toPrecision(10)));
  }
  return found;
}

// A drawing as wide as its place, drawn anew when that changes; `stops` are the places
// that the pointer or the arrow keys go to, `tell` says what is there.
function chart(parent, height, label, paint) {
  const element = draw(parent, "svg", { role: "img", tabindex: 0, "aria-label": label });
  const words = document.createElement("p");
  words.className = "hover";
  words.setAttribute("role", "status");
  parent.append(words);
  let scene = null;
  let stop = null;
  const again = () => {
    const width = Math.max(parent.clientWidth, 160);
    element.setAttribute("viewBox", `0 0 ${width} ${height}`);
    element.setAttribute("width", width);
    element.setAttribute("height", height);
    element.replaceChildren();
    scene = paint(element, width, height);
    point(stop);
  };
  const point = (place) => {
    stop = place === null ? null : Math.min(Math.max(place, 0), scene.stops.length - 1);
    element.querySelector(".cursor")?.remove();
    words.textContent = stop === null ? scene.silent : scene.tell(stop);
    if (stop !== null) {
      const x = scene.stops[stop];
      const line = { x1: x, x2: x, y1: MARGIN.top, y2: height - MARGIN.bottom };
      draw(element, "line", { class: "cursor", ...line });
    }
  };
  const nearest = (event) => {
    const x = event.clientX - element.getBoundingClientRect().left;
    let best = 0;
    scene.stops.forEach((one, place) => {
      if (Math.abs(one - x) < Math.abs(scene.stops[best] - x)) best = place;
    });
    return best;
  };
  element.addEventListener("pointermove", (event) => point(nearest(event)));
  element.addEventListener("pointerdown", (event) => point(nearest(event)));
  element.addEventListener("pointerleave", () => point(null));
  element.addEventListener("blur", () => point(null));
  element.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    point(stop === null ? 0 : stop + step);
  });
  new ResizeObserver(again).observe(parent);
  again();
  return again;
}

function axes(element, width, height, x, y) {
  const [left, right] = [MARGIN.left, width - MARGIN.right];
  for (const { at, text } of y) {
    draw(element, "line", { class: "grid-line", x1: left, x2: right, y1: at, y2: at });
    draw(element, "text", { x: left - 6, y: at + 4, "text-anchor": "end" }, text);
  }
  const base = height - MARGIN.bottom;
  draw(element, "line", { class: "axis", x1: left, x2: right, y1: base, y2: base });
  for (const { at, text } of x) {
    draw(element, "text", { x: at, y: height - 6, "text-anchor": "middle" }, text);
  }
}

// --- histogram ----------------------------------------------------------------------

function binsOf(table) {
  const column = table.named("score") ?? table.level;
  if (!column) return null;
  if (!table.bins) {
    let [low, high] = [Infinity, -Infinity];
    for (const value of column.values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) return null;
    if (low === high) high = low + 1;
    const counts = new Uint32Array(BINS);
    const width = (high - low) / BINS;
    const binOf = (value) => Math.min(Math.floor((value - low) / width), BINS - 1);
    for (const value of column.values) if (!Number.isNaN(value)) counts[binOf(value)] += 1;
    table.bins = { column, low, high, width, counts, binOf };
  }
  return table.bins;
}

function histogram(element, width, height, table) {
  const { column, low, high, width: size, counts, binOf } = binsOf(table);
  const marked = new Uint32Array(BINS);
  for (let row = 0; row < table.first; row += 1) {
    const value = column.values[row];
    if (!Number.isNaN(value)) marked[binOf(value)] += 1;
  }
  const most = Math.max(...counts);
  const base = height - MARGIN.bottom;
  const right = width - MARGIN.right;
  const x = (value) => MARGIN.left + ((value - low) / (high - low)) * (right - MARGIN.left);
  // Few edges are suspicious: on a plain scale they could not be seen.
  const y = (count) => base - (Math.log1p(count) / Math.log1p(most)) * (base - MARGIN.top);
  const powers = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].filter((count) => count <= most);
  const compact = new Intl.NumberFormat("en", { notation: "compact" });
  axes(
    element,
    width,
    height,
    ticks(low, high, 5).map((one) => ({ at: x(one), text: String(one) })),
    powers.map((one) => ({ at: y(one), text: compact.format(one) })),
  );
  const bar = (kind, count, bin) => {
    if (!count) return;
    const [begin, end] = [x(low + bin * size), x(low + (bin + 1) * size)];
    const box = { x: begin + 0.5, width: Math.max(end - begin - 1, 1), y: y(count) };
    draw(element, "rect", { class: kind, ...box, height: base - box.y });
  };
  counts.forEach((count, bin) => bar("bar", count, bin));
  marked.forEach((count, bin) => bar("bar-marked", count, bin));
  if (table.first > 0) {
    const at = x(column.values[table.first - 1]);
    if (!Number.isNaN(at)) {
      const line = { x1: at, x2: at, y1: MARGIN.top - 6, y2: base };
      draw(element, "line", { class: "threshold-line", ...line });
    }
  }
  const tell = (bin) => {
    const [from, to] = [low + bin * size, low + (bin + 1) * size].map(shownNumber);
    const above = marked[bin] ? `, ${grouped.format(marked[bin])} of them marked` : "";
    return `${column.title} ${from} to ${to}: ${grouped.format(counts[bin])} rows${above}`;
  };
  const stops = [...counts].map((_, bin) => x(low + (bin + 0.5) * size));
  return { stops, tell, silent: `Rows by ${column.title}; logarithmic height.` };
}

// --- curves -------------------------------------------------------------------------

const CURVES = [
  { title: "Loss", names: { train_loss: "training", val_loss: "validation" } },
  { title: "Accuracy", names: { val_accuracy: "validation" } },
];

function curves(element, width, height, names, history) {
  const steps = history.step ?? Object.values(history)[0].map((_, place) => place + 1);
  const found = Object.keys(names).filter((name) => history[name]);
  const values = found.flatMap((name) => history[name]).filter((one) => one !== null);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const base = height - MARGIN.bottom;
  const right = width - MARGIN.right;
  const span = steps.at(-1) - steps[0] || 1;
  const x = (step) => MARGIN.left + ((step - steps[0]) / span) * (right - MARGIN.left);
  const y = (value) => base - ((value - low) / (high - low)) * (base - MARGIN.top);
  const whole = ticks(steps[0], steps.at(-1), 5).filter(Number.isInteger);
  axes(
    element,
    width,
    height,
    whole.map((one) => ({ at: x(one), text: grouped.format(one) })),
    ticks(low, high, 4).map((one) => ({ at: y(one), text: String(one) })),
  );
  for (const name of found) {
    const points = history[name]
      .map((value, place) => (value === null ? null : `${x(steps[place])},${y(value)}`))
      .filter(Boolean);
    draw(element, "polyline", { class: `curve ${name}`, points: points.join(" ") });
    if (points.length === 1) {
      const [cx, cy] = points[0].split(",");
      draw(element, "circle", { class: `dot ${name}`, cx, cy, r: 3 });
    }
  }
  const tell = (place) => {
    const said = found.map((name) => {
      const value = history[name][place];
      const text = value === null ? "–" : name.endsWith("accuracy") ? shownShare(value) : shownNumber(value);
      return `${names[name]} ${text}`;
    });
    return `Step ${grouped.format(steps[place])}: ${said.join(", ")}`;
  };
  return { stops: steps.map(x), tell, silent: "" };
}

function showTraining(history) {
  const parts = CURVES.filter(({ names }) => Object.keys(names).some((name) => history[name]));
  byId("training").hidden = !parts.length;
  for (const { title, names } of parts) {
    const box = document.createElement("div");
    box.className = "chart";
    const head = document.createElement("p");
    head.className = "chart-title";
    head.append(title);
    for (const [name, words] of Object.entries(names)) {
      if (!history[name]) continue;
      const key = document.createElement("span");
      key.className = `key ${name}`;
      key.textContent = words;
      head.append(key);
    }
    box.append(head);
    byId("curves").append(box);
    chart(box, 138, `${title} over the steps of the training`, (element, width, height) =>
      curves(element, width, height, names, history),
    );
  }
}
