// The page around the timeline: light and dark, and tables that sort and search.
"use strict";

const root = document.documentElement;

function setScheme(scheme) {
  root.dataset.scheme = scheme;
  const button = document.getElementById("scheme");
  button.textContent = scheme === "dark" ? "☀ light" : "☾ dark";
  button.setAttribute("aria-label", `switch to the ${scheme === "dark" ? "light" : "dark"} scheme`);
}

// what a person chose holds for the next page; some browsers keep nothing of files
function keep(name, value) {
  try { localStorage.setItem(`nadi-${name}`, value); } catch { /* it is chosen anew */ }
}
function kept(name) {
  try { return localStorage.getItem(`nadi-${name}`); } catch { return null; }
}

function setUpScheme() {
  const prefers = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = kept("scheme");
  setScheme(chosen || (prefers.matches ? "dark" : "light"));
  const change = (scheme) => {
    setScheme(scheme);
    nadiMemory.then((shown) => shown?.choose(shown.at));
    nadiTimeline.then((shown) => {
      if (!shown) return;
      shown.view.readColors();
      shown.view.overview.forget();
      showLegend(shown.view);
      shown.view.request();
    });
  };
  prefers.addEventListener("change", () => {
    if (!chosen) change(prefers.matches ? "dark" : "light");
  });
  document.getElementById("scheme").addEventListener("click", () => {
    chosen = root.dataset.scheme === "dark" ? "light" : "dark";
    keep("scheme", chosen);
    change(chosen);
  });
}

/** Return what a cell is sorted by: the exact number in it, or its text. */
function keyOf(cell) {
  const number = cell.querySelector("data");
  return number ? Number(number.value) : cell.textContent.trim().toLowerCase();
}

function setUpTable(table) {
  const body = table.tBodies[0];
  if (body.rows.length < 2) return;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (!head.textContent) return;
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [keyOf(row.cells[column]), row]);
      rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
      body.append(...rows.map(([, row]) => row));
    });
  });
  if ("searchable" in table.dataset) addTools(table, body);
}

function addTools(table, body) {
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "search these rows";
  field.setAttribute("aria-label", "search these rows");
  const button = document.createElement("button");
  button.className = "button";
  button.textContent = "CSV";
  button.setAttribute("aria-label", "these rows as a CSV file");
  button.addEventListener("click", () => download(table));
  table.parentElement.before(field, " ", button);
  field.hidden = body.rows.length <= 8 || table.dataset.searchable === "apart";
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}

/** Write the rows that are shown, in their order, with exact numbers. */
function csvOf(table) {
  const told = (cell) => {
    const numbers = [...cell.querySelectorAll("data")].map((one) => one.value);
    const name = cell.querySelector("details.long > span") ?? cell;
    return numbers.length ? numbers.join(" ") : name.textContent.trim();
  };
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter((row) => !row.hidden)];
  return rows.map((row) => [...row.cells].map((cell) => quoted(told(cell))).join(",") + "\n").join("");
}

function download(table) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csvOf(table)], { type: "text/csv" }));
  link.download = `${table.closest("section").id}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const header = document.querySelector("header");
new ResizeObserver(() => {
  root.style.setProperty("--head", `${header.offsetHeight}px`);
}).observe(header);
const nadiTimeline = openTimeline();
window.nadiTimeline = nadiTimeline;
const nadiMemory = openMemory();
window.nadiMemory = nadiMemory;
setUpScheme();
document.querySelectorAll("table").forEach(setUpTable);
