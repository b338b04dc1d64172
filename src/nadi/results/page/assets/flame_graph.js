// Flame graphs of one recording or of the difference of two, by call or by caller, and their tables.
"use strict";

const FRAME_HEIGHT = 20;
const NARROWEST = 0.0015; // of the width
const KINDS = [
  [/\.py\(\d+\): |^<built-in|^<frozen/, "python"],
  [/^nn\.Module: |^[\w.]+_\d+(\.|$)/, "module"],
  [/^(cuda|hip|cu)[A-Z]/, "runtime"],
  [/::/, "operator"],
];

/** Frames: each has its sums before and after, or those of the only recording. */
class Frames {
  /** Read lines of depth, then calls, total, self and device of each side, and name. */
  static parse(text) {
    const frames = [];
    const around = [];
    for (const line of text.split("\n")) {
      const [depth, ...rest] = line.split("\t");
      const numbers = rest.slice(0, -1).map(Number);
      const sides = [];
      for (let i = 0; i < numbers.length; i += 4) {
        const [calls, total, self, device] = numbers.slice(i, i + 4);
        sides.push({ calls, total, self, device, alone: device });
      }
      const parent = depth === "0" ? -1 : around[depth - 1];
      around[depth] = frames.length;
      if (parent >= 0) {
        frames[parent].inner.push(frames.length);
        sides.forEach((side, i) => { frames[parent].sides[i].alone -= side.device; });
      }
      frames.push({ name: rest.at(-1), depth: Number(depth), sides, parent, inner: [] });
    }
    return frames;
  }

  /** Turn frames over: each name with its time alone, in it those that call it. */
  static callers(frames) {
    const found = [];
    const known = new Map();
    for (const frame of frames) {
      let parent = -1;
      for (let one = frame; one; one = frames[one.parent]) {
        const key = `${parent} ${one.name}`;
        if (!known.has(key)) {
          known.set(key, found.length);
          if (parent >= 0) found[parent].inner.push(found.length);
          const sides = frame.sides.map(() => ({ calls: 0, total: 0, self: 0, device: 0, alone: 0 }));
          found.push({ name: one.name, depth: parent < 0 ? 0 : found[parent].depth + 1, sides, parent,
            inner: [] });
        }
        parent = known.get(key);
        frame.sides.forEach((side, i) => {
          const sum = found[parent].sides[i];
          sum.calls += side.calls;
          sum.total += side.self;
          sum.device += side.alone;
          if (one === frame) { sum.self += side.self; sum.alone += side.alone; }
        });
      }
    }
    return found;
  }

  /** Sum the frames in one by name, or list them by path; a name in itself counts once. */
  static table(frames, root, byPath) {
    const found = new Map();
    const path = [];
    const visit = (at) => {
      const { name, sides, inner } = frames[at];
      const title = byPath ? [...path, name].join(" > ") : name;
      if (!found.has(title)) {
        found.set(title, { name, title, sides: sides.map(
          () => ({ calls: 0, total: 0, self: 0, device: 0, alone: 0 })) });
      }
      sides.forEach((side, i) => {
        const sum = found.get(title).sides[i];
        sum.calls += side.calls;
        sum.self += side.self;
        sum.alone += side.alone;
        if (!path.includes(name)) { sum.total += side.total; sum.device += side.device; }
      });
      path.push(name);
      inner.forEach(visit);
      path.pop();
    };
    frames.forEach((frame, at) => { if (root < 0 ? frame.parent < 0 : at === root) visit(at); });
    return [...found.values()];
  }
}

class FlameGraph {
  constructor(box) {
    this.box = box;
    this.place = box.querySelector(".frames");
    this.table = box.querySelector(".frame-table");
    this.details = box.querySelector(".frame-details");
    this.output = box.querySelector("output");
    this.search = box.querySelector("input");
    this.sets = [...box.querySelectorAll("pre")].map((one) => Frames.parse(one.textContent));
    this.isCompared = this.sets[0][0].sides.length > 1;
    this.chosenOf = { set: "0", view: "graph", place: "total", side: this.isCompared ? "1" : "0" };
    this.take();
    this.listen();
  }

  /** Take the frames of what is chosen. */
  take() {
    const calls = this.sets[this.chosenOf.set];
    const isTurned = this.chosenOf.view === "callers";
    this.frames = isTurned ? (calls.callers ??= Frames.callers(calls)) : calls;
    [this.root, this.chosen] = [-1, -1];
    this.draw();
  }

  /** Return the numbers of the sides: of two recordings, before and after. */
  sides() { return this.isCompared ? [0, 1] : [0]; }

  value(at, side = this.chosenOf.side) { return this.frames[at].sides[side][this.chosenOf.place]; }

  roots() {
    return this.frames.map((_, at) => at).filter((at) => this.frames[at].parent < 0);
  }

  whole() { return this.roots().reduce((sum, at) => sum + this.value(at), 0); }

  /** Lay out what is visible: frames and where they stand, from 0 to 1. */
  layout() {
    const shown = [];
    const stack = [];
    let above = 0;
    let tops = this.roots();
    if (this.root >= 0) {
      const path = [];
      for (let at = this.frames[this.root].parent; at >= 0; at = this.frames[at].parent) {
        path.unshift(at);
      }
      path.forEach((at, level) => shown.push({ at, level, x: 0, width: 1, isAround: true }));
      above = path.length;
      tops = [this.root];
    }
    const whole = 1 / (tops.reduce((sum, at) => sum + this.value(at), 0) || 1);
    // calls that outlive the one around them are drawn as if they ended with it
    const put = (list, level, begin, room) => {
      let x = begin;
      const sum = list.reduce((all, at) => all + this.value(at), 0) * whole;
      const scale = sum > room ? whole * room / sum : whole;
      for (const at of [...list].sort((a, b) => this.value(b) - this.value(a))) {
        const width = this.value(at) * scale;
        if (width >= NARROWEST) stack.push({ at, level, x, width });
        x += width;
      }
    };
    put(tops, above, 0, 1);
    while (stack.length) {
      const one = stack.pop();
      shown.push(one);
      put(this.frames[one.at].inner, one.level + 1, one.x, one.width);
    }
    return shown.sort((a, b) => a.level - b.level || a.x - b.x);
  }

  draw() {
    const wanted = this.wanted();
    const isTable = ["names", "paths"].includes(this.chosenOf.view);
    this.place.hidden = this.details.hidden = isTable;
    this.table.hidden = !isTable;
    this.output.textContent = wanted ? this.found(wanted) : "";
    if (isTable) this.write(wanted); else this.paint(wanted);
  }

  /** Return whether a name fits the search; null without one. */
  wanted() {
    const text = this.search.value;
    if (!text) return null;
    try {
      const fits = fitting(text, this.frames.map((frame) => frame.name));
      return (at) => Boolean(fits[at]);
    } catch { return null; }  // an expression that is not complete yet
  }

  paint(wanted) {
    this.visible = new Map();
    let deepest = 0;
    const elements = this.layout().map((one) => {
      const frame = this.frames[one.at];
      const element = document.createElement("div");
      element.className = `frame ${this.kindOf(frame.name)}`;
      if (this.isCompared) element.style.background = this.change(one.at);
      if (one.isAround) element.classList.add("around");
      if (one.at === this.chosen) element.classList.add("chosen");
      if (wanted && !wanted(one.at)) element.classList.add("other");
      element.style.left = `${100 * one.x}%`;
      element.style.width = `${100 * one.width}%`;
      element.style.top = `${one.level * FRAME_HEIGHT}px`;
      element.textContent = one.width > 0.02 ? frame.name : "";
      element.dataset.frame = one.at;
      deepest = Math.max(deepest, one.level);
      this.visible.set(one.at, one);
      return element;
    });
    this.place.replaceChildren(...elements);
    this.place.style.height = `${(deepest + 1) * FRAME_HEIGHT}px`;
    this.tell(this.chosen);
  }

  kindOf(name) {
    if (this.box.querySelectorAll("pre")[this.chosenOf.set].dataset.kind === "module") return "module";
    const found = KINDS.find(([pattern]) => pattern.test(name));
    return found ? found[1] : "annotation";
  }

  /** Return red for what takes longer after, blue for what takes less, as strong as its ratio. */
  change(at) {
    const [before, after] = [this.value(at, 0), this.value(at, 1)];
    const part = (after - before) / (Math.max(before, after) || 1);
    const color = part > 0 ? "more" : "less";
    return `color-mix(in srgb, var(--flame-${color}) ${Math.round(100 * Math.sqrt(Math.abs(part)))}%, ` +
      "var(--flame-annotation))";
  }

  /** Say how much time the frames that fit a search take, each once. */
  found(wanted) {
    let count = 0;
    let time = 0;
    this.frames.forEach((frame, at) => {
      if (!wanted(at)) return;
      count += 1;
      let above = frame.parent;
      while (above >= 0 && !wanted(above)) above = this.frames[above].parent;
      if (above < 0) time += this.value(at);
    });
    return `${count} frames, ${formatTime(time)}, ${this.share(time)}`;
  }

  share(time) {
    const whole = this.whole();
    return whole ? `${(100 * time / whole).toFixed(1)} %` : "-";
  }

  tell(at) {
    if (at < 0) { this.details.textContent = " "; return; }
    const { name, sides } = this.frames[at];
    const [first, last] = [sides[0], sides.at(-1)];
    const times = (key) => (this.isCompared
      ? `${formatTime(first[key])} → ${formatTime(last[key])} (${signed(last[key] - first[key])})`
      : formatTime(last[key]));
    const calls = sides.map((side) => formatCount(side.calls)).join(" → ");
    const parts = [
      `${name}: ${times("total")} on the host`, `self ${times("self")}`,
      ...(first.device || last.device ? [`${times("device")} on devices`] : []),
      `${calls} calls`, this.share(this.value(at)),
    ];
    this.details.textContent = parts.join(", ");
  }

  /** Write the frames within the one that is zoomed to as a table that sorts. */
  write(wanted) {
    const fits = wanted && new Set(this.frames.filter((_, at) => wanted(at)).map((one) => one.name));
    const rows = Frames.table(this.frames, this.root, this.chosenOf.view === "paths")
      .filter((row) => !fits || fits.has(row.name));
    const now = this.sides().length - 1;
    const [whole, alone] = this.chosenOf.place === "total" ? ["total", "self"] : ["device", "alone"];
    const columns = [];
    for (const [key, title] of [["calls", "calls"], [whole, "total"], [alone, "self"]]) {
      const write = key === "calls" ? formatCount : formatTime;
      for (const side of this.sides()) {
        const told = this.isCompared ? `${title} ${side ? "after" : "before"}` : title;
        columns.push([told, (row) => row.sides[side][key], write]);
      }
    }
    const change = (row) => row.sides[now][alone] - row.sides[0][alone];
    if (this.isCompared) columns.push(["change of self", change, signed]);
    const size = (row) => (this.isCompared ? Math.abs(change(row)) : row.sides[0][alone]);
    rows.sort((a, b) => size(b) - size(a) || (a.title < b.title ? -1 : 1));
    this.rows = rows;
    this.table.replaceChildren();
    const table = add(add(this.table, "div"), "table");
    table.parentElement.className = "scroll tall";
    table.dataset.searchable = "apart";  // the frames have a search
    const inside = this.root < 0 ? "all" : `within ${this.frames[this.root].name}`;
    const place = whole === "total" ? "the host" : "devices";
    add(table, "caption", `${formatCount(rows.length)} rows, time on ${place}, ${inside}`);
    const head = add(add(table, "thead"), "tr");
    ["name", ...columns.map(([title]) => title)].forEach((title, i) => {
      const cell = add(head, "th", title);
      cell.scope = "col";
      if (i) cell.className = "num";
    });
    const body = add(table, "tbody");
    for (const row of rows.slice(0, ROWS_SHOWN)) {
      const line = add(body, "tr");
      add(line, "td", row.title).className = "name";
      for (const [, of, write] of columns) {
        const cell = add(line, "td");
        cell.className = "num";
        add(cell, "data", write(of(row))).value = of(row);
      }
    }
    if (rows.length > ROWS_SHOWN) add(this.table, "small", `and ${rows.length - ROWS_SHOWN} more`);
    setUpTable(table);
  }

  zoom(at) {
    this.root = at;
    this.chosen = at;
    this.draw();
  }

  /** Choose the frame around, within or beside the chosen one. */
  go(key) {
    if (this.chosen < 0) { this.choose(this.frames.length ? 0 : -1); return; }
    const frame = this.frames[this.chosen];
    const one = this.visible.get(this.chosen);
    const beside = [...this.visible.values()]
      .filter((other) => one && other.level === one.level)
      .sort((a, b) => a.x - b.x);
    const place = beside.findIndex((other) => other.at === this.chosen);
    const inner = [...frame.inner].sort((a, b) => this.value(b) - this.value(a));
    const target = {
      ArrowUp: frame.parent,
      ArrowDown: inner.length ? inner[0] : -1,
      ArrowLeft: place > 0 ? beside[place - 1].at : -1,
      ArrowRight: place >= 0 && place + 1 < beside.length ? beside[place + 1].at : -1,
    }[key];
    if (target >= 0 && this.visible.has(target)) this.choose(target);
  }

  choose(at) {
    this.chosen = at;
    this.draw();
  }

  listen() {
    this.place.addEventListener("click", (event) => {
      const frame = event.target.dataset.frame;
      if (frame !== undefined) this.zoom(Number(frame));
    });
    this.place.addEventListener("pointermove", (event) => {
      const frame = event.target.dataset.frame;
      this.tell(frame === undefined ? this.chosen : Number(frame));
    });
    this.place.addEventListener("pointerleave", () => this.tell(this.chosen));
    this.place.addEventListener("keydown", (event) => {
      if (event.key.startsWith("Arrow")) this.go(event.key);
      else if (event.key === "Enter") this.zoom(this.chosen);
      else if (event.key === "Escape" || event.key === "0") this.zoom(-1);
      else return;
      event.preventDefault();
    });
    this.box.querySelector("[data-out]").addEventListener("click", () => this.zoom(-1));
    this.search.addEventListener("input", () => this.draw());
    for (const button of this.box.querySelectorAll("[data-choice]")) {
      button.addEventListener("click", () => this.pick(button));
    }
  }

  /** Change one of the choices: which frames, how they are shown, of which place, of which side. */
  pick(button) {
    const { choice, value } = button.dataset;
    const isOther = choice === "set" || [value, this.chosenOf[choice]].includes("callers");
    this.chosenOf[choice] = value;
    for (const other of this.box.querySelectorAll(`[data-choice="${choice}"]`)) {
      other.setAttribute("aria-pressed", other === button);
    }
    if (isOther) this.take(); else this.draw();
  }
}

function signed(time) { return `${time > 0 ? "+" : ""}${formatTime(time)}`; }

window.nadiFlames = [...document.querySelectorAll(".flame")].map((box) => new FlameGraph(box));
