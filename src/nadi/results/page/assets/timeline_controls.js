// How the timeline is used: pointer, wheel, keys, search, and the details of an event.
"use strict";

class TimelineControls {
  constructor(view) {
    this.view = view;
    this.data = view.data;
    this.matches = [];
    this.match = -1;
    this.tip = document.getElementById("tip");
    this.details = document.getElementById("timeline-details");
    this.field = document.getElementById("timeline-search");
    this.number = document.getElementById("timeline-found");
    this.#listen();
  }

  #listen() {
    const { view } = this;
    const { canvas, scroller } = view;
    scroller.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    scroller.addEventListener("scroll", () => view.request());
    canvas.addEventListener("pointerdown", (event) => this.#press(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#release(event));
    canvas.addEventListener("pointercancel", () => { this.pressed = null; });
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("dblclick", (event) => {
      const found = view.eventAt(event.offsetX, event.offsetY);
      if (found >= 0) this.focus(found);
    });
    canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => view.resize()).observe(scroller);
    this.field.addEventListener("input", () => this.search(this.field.value));
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { this.next(event.shiftKey ? -1 : 1); event.preventDefault(); }
      if (event.key === "Escape") { this.field.value = ""; this.search(""); canvas.focus(); }
    });
    const on = (id, act) => document.getElementById(id).addEventListener("click", act);
    on("timeline-in", () => view.zoom(0.5));
    on("timeline-out", () => view.zoom(2));
    on("timeline-home", () => view.show(...view.home));
    on("timeline-path", (event) => {
      view.pathOnly = !view.pathOnly;
      event.currentTarget.setAttribute("aria-pressed", String(view.pathOnly));
      view.layOut();
      view.resize();
    });
    on("timeline-next", () => this.next(1));
  }

  #wheel(event) {
    const { view } = this;
    if (event.ctrlKey || event.metaKey) {
      view.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.008), event.offsetX);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.pan(event.deltaX || event.deltaY);
    } else {
      return;  // rows scroll
    }
    event.preventDefault();
  }

  #press(event) {
    if (event.button) return;
    this.pressed = { x: event.clientX, y: event.clientY, moved: false };
    this.view.canvas.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const { view, pressed } = this;
    if (pressed) {
      const [dx, dy] = [event.clientX - pressed.x, event.clientY - pressed.y];
      if (!pressed.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
      pressed.moved = true;
      view.canvas.classList.add("dragged");
      view.pan(-dx);
      view.scroller.scrollTop -= dy;
      [pressed.x, pressed.y] = [event.clientX, event.clientY];
      this.tip.hidden = true;
      return;
    }
    const found = view.eventAt(event.offsetX, event.offsetY);
    this.tip.hidden = found < 0;
    if (found < 0) return;
    const { data } = this;
    const name = data.nameOf(found);
    this.tip.textContent = [
      name.length > 300 ? `${name.slice(0, 300)}…` : name,
      `${formatTime(data.end[found] - data.start[found])}, ${data.categoryOf(found)}` +
        (data.critical[found] ? ", on the critical path" : ""),
    ].join("\n");
    const right = event.clientX + 16 + this.tip.offsetWidth > window.innerWidth;
    this.tip.style.left = `${event.clientX + (right ? -12 - this.tip.offsetWidth : 14)}px`;
    this.tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - this.tip.offsetHeight)}px`;
  }

  #release(event) {
    const { view, pressed } = this;
    this.pressed = null;
    view.canvas.classList.remove("dragged");
    if (!pressed || pressed.moved) return;
    view.canvas.focus({ preventScroll: true });
    const process = event.offsetX < view.gutter ? view.processAt(event.offsetY) : -1;
    if (process >= 0) {
      if (!view.closed.delete(process)) view.closed.add(process);
      view.layOut();
      view.resize();
    } else {
      this.select(view.eventAt(event.offsetX, event.offsetY), false);
    }
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { view } = this;
    const far = (view.width - view.gutter) / 5;
    const act = {
      w: () => view.zoom(0.7), s: () => view.zoom(1 / 0.7),
      "+": () => view.zoom(0.7), "=": () => view.zoom(0.7), "-": () => view.zoom(1 / 0.7),
      a: () => view.pan(-far), d: () => view.pan(far),
      ArrowLeft: () => view.pan(-far), ArrowRight: () => view.pan(far),
      ArrowUp: () => { view.scroller.scrollTop -= 60; },
      ArrowDown: () => { view.scroller.scrollTop += 60; },
      0: () => view.show(...view.home), Home: () => view.show(...view.home),
      f: () => { if (view.selected >= 0) this.focus(view.selected); },
      "/": () => this.field.focus(),
      n: () => this.next(1), N: () => this.next(-1),
      "]": () => this.step(1), "[": () => this.step(-1),
      Escape: () => this.select(-1),
    }[event.key];
    if (act) { act(); event.preventDefault(); }
  }

  /** Select the next or the previous event of the row; without one, the first of the path. */
  step(by) {
    const { data, view } = this;
    if (view.selected < 0) { this.select(view.pathEvents[0] ?? 0); return; }
    const row = data.rows[data.rowOf[view.selected]];
    const next = view.selected + by;
    if (next >= row.first && next < row.last) this.select(next);
  }

  /** Zoom to an event. */
  focus(event) {
    const { data, view } = this;
    const length = Math.max(data.end[event] - data.start[event], 10);
    view.show(data.start[event] - length * 0.3, data.end[event] + length * 0.3);
    this.select(event);
  }

  search(text) {
    const { view } = this;
    const { fits, events } = text ? this.data.find(text) : { fits: null, events: [] };
    view.found = fits;
    this.matches = events;
    this.match = -1;
    this.number.textContent = text ? `${events.length.toLocaleString("en-US")} found` : "";
    view.request();
  }

  next(by) {
    const size = this.matches.length;
    if (!size) return;
    this.match = this.match < 0 ? (by > 0 ? 0 : size - 1) : (this.match + by + size) % size;
    this.number.textContent =
      `${(this.match + 1).toLocaleString("en-US")} of ${size.toLocaleString("en-US")}`;
    this.select(this.matches[this.match]);
  }

  select(event, reveal = true) {
    this.view.selected = event;
    if (event >= 0 && reveal) this.view.reveal(event);
    this.#describe(event);
    this.view.request();
  }

  /** Write the details of an event, all of it as text. */
  #describe(event) {
    const { data, details } = this;
    details.replaceChildren();
    if (event < 0) {
      details.textContent = "Click an operation for its details and its dependencies.";
      return;
    }
    const add = (parent, tag, text) => {
      const made = document.createElement(tag);
      if (text !== undefined) made.textContent = text;
      parent.append(made);
      return made;
    };
    add(details, "h3", data.nameOf(event));
    const list = add(details, "dl");
    const track = data.trackOf(event);
    const facts = {
      duration: formatTime(data.end[event] - data.start[event]),
      start: formatTime(data.start[event]),
      "runs on": `${data.processes[track.process]}, ${track.title}`,
      category: data.categoryOf(event),
      "critical path": data.critical[event] ? "yes" : "no",
    };
    if (data.node[event] >= 0 && !track.isPath) facts.id = String(data.node[event]);
    for (const [name, value] of Object.entries(facts)) {
      add(list, "dt", name);
      add(list, "dd", value);
    }
    for (const line of data.textOf(event).split("\n").filter(Boolean)) {
      const colon = line.indexOf(": ");
      add(list, "dt", line.slice(0, colon));
      add(list, "dd", shortened(line.slice(colon + 2)));
    }
    const link = (parent, other) => {
      const button = add(parent, "button", shortened(data.nameOf(other)));
      button.addEventListener("click", () => this.select(other));
      const place = data.trackOf(other);
      add(parent, "small", ` ${formatTime(data.end[other] - data.start[other])}, ` +
        `${data.processes[place.process]}, ${place.title}`);
    };
    const around = data.around(event);
    const { before, after } = data.dependencies(event);
    const groups = [
      ["inside of", around.map((other) => ({ event: other }))],
      ["waits for", before], ["is waited for by", after],
    ];
    const beside = add(details, "div");
    for (const [title, items] of groups) {
      if (!items.length) continue;
      const group = add(beside, "div");
      add(group, "h4", `${title} (${items.length})`);
      const items_shown = add(group, "ul");
      for (const item of items.slice(0, 30)) {
        const line = add(items_shown, "li");
        if (item.kind) add(line, "small", `${item.kind}${item.inferred ? ", inferred" : ""}: `);
        link(line, item.event);
      }
      if (items.length > 30) add(items_shown, "li", `and ${items.length - 30} more`);
    }
  }
}

function shortened(text) { return text.length > 160 ? `${text.slice(0, 160)}…` : text; }

/** Read the page's timeline and draw it; window.nadiTimeline tells when that is done. */
async function openTimeline() {
  const content = document.getElementById("timeline-data");
  if (!content) return null;
  const status = document.getElementById("timeline-status");
  try {
    const begun = performance.now();
    const data = new TimelineData(await unpack(content.textContent));
    content.remove();
    const view = new TimelineView(
      data, document.getElementById("timeline-canvas"), document.getElementById("timeline-rows"));
    const controls = new TimelineControls(view);
    view.draw();
    status.hidden = true;
    setTimeout(() => data.prepare(), 0);
    controls.select(-1);
    return { data, view, controls, openTime: performance.now() - begun };
  } catch (error) {
    status.textContent = `The timeline cannot be shown: ${error.message}`;
    throw error;
  }
}
