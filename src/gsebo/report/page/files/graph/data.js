"use strict";
// What the page holds: numbers and texts in one packed block, read where they are needed.

const byId = (id) => document.getElementById(id);
const about = JSON.parse(byId("about").textContent);
const grouped = new Intl.NumberFormat("en");
const ARRAYS = { Float32: Float32Array, Float64: Float64Array, Int32: Int32Array };
let block = null;
const parsed = new Map();

async function unpack() {
  const element = byId("numbers");
  const letters = atob(element.textContent);
  element.remove();
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = letters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  block = await new Response(stream).arrayBuffer();
}

const numbersOf = (place) => new ARRAYS[place.type](block, place.at, place.length);

// Texts are read when the first of them is looked at, and once.
function textsOf(place) {
  if (!parsed.has(place.at)) {
    const bytes = new Uint8Array(block, place.at, place.bytes);
    parsed.set(place.at, JSON.parse(new TextDecoder().decode(bytes)));
  }
  return parsed.get(place.at);
}

// In small letters, for the search.
function loweredOf(place) {
  const key = `lowered ${place.at}`;
  if (!parsed.has(key)) {
    parsed.set(key, textsOf(place).map((text) => text.toLowerCase()));
  }
  return parsed.get(key);
}

const brief = (text, most) => (text.length > most ? `${text.slice(0, most)}…` : text);

function shownNumber(value) {
  if (Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return grouped.format(value);
  const size = Math.abs(value);
  if (size >= 1000) return grouped.format(Math.round(value));
  return size >= 0.001 ? value.toPrecision(3) : value.toExponential(1);
}

function shownShare(share) {
  if (Number.isNaN(share)) return "–";
  const percent = 100 * share;
  const digits = (percent > 0 && percent < 1) || (percent > 99 && percent < 100) ? 1 : 0;
  return `${percent.toFixed(digits)} %`;
}

// As it is written to files: all the digits that the page holds.
const exact = (value) => (Number.isNaN(value) ? "" : String(Number(value.toPrecision(6))));

const nodes = {
  count: about.nodes.count,
  classes: about.nodes.classes,
  ready() {
    for (const name of ["degree", "label", "predicted", "confidence"]) {
      this[name] = about.nodes[name] ? numbersOf(about.nodes[name]) : null;
    }
  },
  id: (node) => textsOf(about.nodes.id)[node],
  // As it is read: an id may consist of blanks.
  name: (node) => (nodes.id(node).trim() ? nodes.id(node) : "(blank)"),
  lowered: () => loweredOf(about.nodes.id),
  classOf: (node) => (nodes.label[node] >= 0 ? nodes.label[node] : nodes.predicted[node]),
  isKnown: (node) => nodes.label[node] >= 0,
  className: (node) => nodes.classes[nodes.classOf(node)] ?? null,
  // The place of each node among all when their ids are in order, numbers as numbers.
  places() {
    if (!this.placeOf) {
      const ids = textsOf(about.nodes.id);
      const numbers = Float64Array.from(ids, (id) => (/^-?\d{1,15}$/.test(id) ? +id : NaN));
      const order = Uint32Array.from(ids, (_, node) => node);
      const later = (a, b) => (ids[a] < ids[b] ? -1 : ids[a] > ids[b] ? 1 : 0);
      if (numbers.some(Number.isNaN)) order.sort(later);
      else order.sort((a, b) => numbers[a] - numbers[b]);
      this.placeOf = new Float64Array(order.length);
      order.forEach((node, place) => (this.placeOf[node] = place));
    }
    return this.placeOf;
  },
};

// A column knows how it is shown, written to a file and ordered by.
function makeColumn(said) {
  const { name, title, meaning, kind } = said;
  if (kind === "text") {
    const codes = numbersOf(said.codes);
    const text = (row) => (codes[row] < 0 ? "" : textsOf(said.texts)[codes[row]]);
    const keys = () => {
      const texts = textsOf(said.texts);
      const order = texts.map((_, code) => code);
      order.sort((a, b) => (texts[a] < texts[b] ? -1 : texts[a] > texts[b] ? 1 : 0));
      const place = new Float64Array(texts.length);
      order.forEach((code, at) => (place[code] = at));
      return Float64Array.from(codes, (code) => (code < 0 ? NaN : place[code]));
    };
    const lowered = () => loweredOf(said.texts);
    return { name, title, meaning, kind, codes, lowered, text, plain: text, keys };
  }
  const values = numbersOf(said.values);
  const shown = kind === "share" ? shownShare : shownNumber;
  return {
    ...{ name, title, meaning, kind, values },
    text: (row) => shown(values[row]),
    plain: (row) => exact(values[row]),
    keys: () => values,
  };
}

function nodeColumn(name, ends) {
  const text = (row) => nodes.name(ends[row]);
  const plain = (row) => nodes.id(ends[row]);
  const keys = () => {
    const places = nodes.places();
    return Float64Array.from(ends, (node) => places[node]);
  };
  return { name, title: name, meaning: null, kind: "node", ends, text, plain, keys };
}

function makeTable(said) {
  const [source, target] = said.ends.map(numbersOf);
  const count = source.length;
  const evidence = said.columns.map(makeColumn);
  const ends = [nodeColumn("source", source), nodeColumn("target", target)];
  const rank = {
    ...{ name: "rank", title: "#", meaning: "place in the list", kind: "rank" },
    text: (row) => grouped.format(row + 1),
    keys: () => Float64Array.from(source, (_, row) => row),
  };
  const named = (name) => evidence.find((column) => column.name === name);
  // What is read first stands first; a file keeps the order of the columns as given.
  const leading = ["probability", "score", "reason"].map(named).filter(Boolean);
  const classes = ["source_class", "target_class"].map(named).filter(Boolean);
  const others = evidence.filter((one) => !leading.includes(one) && !classes.includes(one));
  return {
    ...{ key: said.key, title: said.title, total: said.total, expected: said.expected },
    ...{ count, source, target, evidence, named },
    inFiles: [...ends, ...evidence],
    onScreen: [rank, ...ends, ...leading, ...others, ...classes],
    numeric: evidence.filter((column) => column.kind !== "text"),
    level: named("probability") ?? named("score") ?? null,
    first: 0,
  };
}

// The expected precision of the first so many rows, between the places that are known.
function expectedOf(table, first) {
  const known = table.expected;
  if (!known || !known.first.length || first < 1) return null;
  const at = (name, place) => known[name]?.[place] ?? null;
  let after = known.first.findIndex((one) => one >= first);
  if (after < 0) after = known.first.length - 1;
  const before = Math.max(after - 1, 0);
  const [low, high] = [known.first[before], known.first[after]];
  const share = high > low ? Math.min(Math.max((first - low) / (high - low), 0), 1) : 0;
  const between = (name) => {
    const [one, other] = [at(name, before), at(name, after)];
    return one === null || other === null ? null : one + share * (other - one);
  };
  const beyond = first > known.first.at(-1);
  return { precision: between("precision"), low: between("low"), high: between("high"), beyond };
}
