"use strict";
// The filter: hides what is about other datasets, networks and methods, and keeps the
// choice in the address, as `#place?dataset=cora&method=gsebo,vanilla`.
(() => {
  const KINDS = ["dataset", "backbone", "method"];
  const form = document.getElementById("filter");
  const shown = document.getElementById("shown");
  const nothing = document.getElementById("nothing");
  const main = document.querySelector("main");
  const boxes = [...form.querySelectorAll("input")];
  const tagged = main.querySelectorAll(KINDS.map((kind) => `[data-${kind}]`).join());
  const rows = main.querySelectorAll("tr[data-leaf]");
  const hulls = [...main.querySelectorAll("[data-hull]")].reverse();

  const chosen = (kind) =>
    boxes.filter((box) => box.name === kind && box.checked).map((box) => box.value);

  const off = (element, hide) => element.toggleAttribute("data-off", hide);

  const isOff = (element) => element.hasAttribute("data-off");

  function apply() {
    const choice = KINDS.map((kind) => [kind, new Set(chosen(kind))]);
    const active = choice.filter(([, names]) => names.size);
    for (const element of tagged) {
      const fits = ([kind, names]) => {
        const own = element.dataset[kind];
        return own === undefined || own.split(" ").some((name) => names.has(name));
      };
      off(element, !active.every(fits));
    }
    for (const hull of hulls) {
      if (!KINDS.some((kind) => kind in hull.dataset)) off(hull, false);
    }
    // A line without any column left says nothing.
    for (const row of rows) {
      if (!isOff(row) && row.cells.length) {
        const cells = [...row.cells].filter((cell) => cell.tagName === "TD");
        off(row, cells.every(isOff));
      }
    }
    // From the inside out, so that what holds only hidden things is hidden too.
    for (const hull of hulls) {
      const leaves = [...hull.querySelectorAll("[data-leaf]")];
      const empty = leaves.length && leaves.every((leaf) => leaf.closest("[data-off]"));
      if (active.length && empty) off(hull, true);
    }
    // What others have printed is about nothing that could be chosen.
    const about = (leaf) => KINDS.some((kind) => kind in leaf.dataset);
    const leaves = [...main.querySelectorAll("[data-leaf]")].filter(about);
    nothing.hidden = !active.length || leaves.some((leaf) => !leaf.closest("[data-off]"));
    shown.textContent = active.length ? words(active) : "everything is shown";
  }

  function words(active) {
    const title = (name, kind) =>
      boxes.find((box) => box.name === kind && box.value === name).nextSibling.textContent;
    return active
      .map(([kind, names]) => [...names].map((name) => title(name, kind)).join(", "))
      .join(" · ");
  }

  function address() {
    const place = location.hash.slice(1).split("?")[0];
    const query = KINDS.filter((kind) => chosen(kind).length)
      .map((kind) => `${kind}=${chosen(kind).map(encodeURIComponent).join()}`)
      .join("&");
    const hash = query ? `#${place}?${query}` : place ? `#${place}` : "";
    // An empty hash would leave the old one in the address.
    history.replaceState(null, "", hash || location.pathname + location.search);
  }

  function read() {
    const [place, query] = location.hash.slice(1).split("?");
    if (query !== undefined) {
      const wanted = new URLSearchParams(query);
      for (const box of boxes) {
        box.checked = (wanted.get(box.name) ?? "").split(",").includes(box.value);
      }
    }
    apply();
    address();
    const target = document.getElementById(decodeURIComponent(place));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) {
      if (at.tagName === "DETAILS") at.open = true;
    }
    target.scrollIntoView();
  }

  form.hidden = false;
  form.addEventListener("change", () => {
    apply();
    address();
  });
  form.addEventListener("reset", () => {
    for (const box of boxes) box.checked = false;
    apply();
    address();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", read);

  // On paper nothing can be unfolded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const one of folded) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
  });

  if (location.hash) read();
})();
