// Flame graphs: frames as elements, only those that are wide enough to be seen.
"use strict";

const FRAME_HEIGHT = 20;
const NARROWEST = 0.0015; // of the width
const KINDS = [
  [/\.py\(\d+\): |^<built-in|^<frozen/, "python"],
  [/^nn\.Module: |^[\w.]+_\d+(\.|$)/, "module"],
  [/^(cuda|hip|cu)[A-Z]/, "runtime"],
  [/::/, "operator"],
];

class FlameGraph {
  constructor(box) {
    this.box = box;
    this.place = box.querySelector(".frames");
    this.details = box.querySelector(".frame-details");
    this.output = box.querySelector("output");
    this.search = box.querySelector("input");
    const lines = box.querySelector("pre");
    this.frames = FlameGraph.parse(lines.textContent);
    this.isModules = box.id === "flame-modules";
    this.measure = 1;
    this.root = -1;
    this.chosen = -1;
    this.listen();
    this.draw();
  }

  /** Read lines of depth, count, total, self, device and name, each after the one around it. */
  static parse(text) {
    const frames = [];
    const around = [];
    for (const line of text.split("\n")) {
      const [depth, count, total, self, device, ...name] = line.split("\t");
      const frame = {
        depth: Number(depth), times: [Number(count), Number(total), Number(self), Number(device)],
        name: name.join(" "), parent: depth === "0" ? -1 : around[depth - 1], inner: [],
      };
      around[frame.depth] = frames.length;
      if (frame.parent >= 0) frames[frame.parent].inner.push(frames.length);
      frames.push(frame);
    }
    return frames;
  }

  value(frame) { return this.frames[frame].times[this.measure]; }

  roots() {
    return this.frames.map((_, at) => at).filter((at) => this.frames[at].depth === 0);
  }

  whole() { return this.roots().reduce((sum, at) => sum + this.value(at), 0); }

  /** Lay out what is visible: pairs of a frame and where it stands, from 0 to 1. */
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
    const wanted = this.search.value.toLowerCase();
    const shown = this.layout();
    this.visible = new Map();
    let deepest = 0;
    const elements = shown.map((one) => {
      const frame = this.frames[one.at];
      const element = document.createElement("div");
      element.className = `frame ${this.kindOf(frame.name)}`;
      if (one.isAround) element.classList.add("around");
      if (one.at === this.chosen) element.classList.add("chosen");
      if (wanted && !frame.name.toLowerCase().includes(wanted)) element.classList.add("other");
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
    this.output.textContent = wanted ? this.found(wanted) : "";
    this.tell(this.chosen);
  }

  kindOf(name) {
    if (this.isModules) return "module";
    const found = KINDS.find(([pattern]) => pattern.test(name));
    return found ? found[1] : "annotation";
  }

  /** Say how much time the frames with a text take, each once. */
  found(wanted) {
    const has = this.frames.map((frame) => frame.name.toLowerCase().includes(wanted));
    let time = 0;
    this.frames.forEach((frame, at) => {
      let above = frame.parent;
      while (above >= 0 && !has[above]) above = this.frames[above].parent;
      if (has[at] && above < 0) time += this.value(at);
    });
    return `${has.filter(Boolean).length} frames, ${formatTime(time)}, ${this.share(time)}`;
  }

  share(time) {
    const whole = this.whole();
    return whole ? `${(100 * time / whole).toFixed(1)} %` : "-";
  }

  tell(at) {
    if (at < 0) { this.details.textContent = " "; return; }
    const { name, times } = this.frames[at];
    const parts = [
      `${name}: ${formatTime(times[1])} on the host`, `self ${formatTime(times[2])}`,
      ...(times[3] ? [`${formatTime(times[3])} on devices`] : []),
      `${times[0].toLocaleString("en-US")} calls`, this.share(this.value(at)),
    ];
    this.details.textContent = parts.join(", ");
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
    const buttons = this.box.querySelectorAll("[data-measure]");
    for (const button of buttons) {
      button.addEventListener("click", () => {
        this.measure = Number(button.dataset.measure);
        for (const other of buttons) other.setAttribute("aria-pressed", other === button);
        this.draw();
      });
    }
  }
}

window.nadiFlames = [...document.querySelectorAll(".flame")].map((box) => new FlameGraph(box));
