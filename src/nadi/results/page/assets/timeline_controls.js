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
    this.area = new AreaPanel(this);
    this.#listen();
    showLegend(view);
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
    on("timeline-path", () => this.pathOnly(!view.pathOnly));
    on("timeline-most", () => this.maximise());
    on("timeline-next", () => this.next(1));
    on("timeline-shown", () => { view.hidden.clear(); this.arranged(); });
    const filter = document.getElementById("timeline-filter");
    filter.addEventListener("input", () => this.filter(filter.value));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.isMost && event.target !== canvas) this.maximise(false);
    });
  }

  pathOnly(only) {
    this.view.pathOnly = only;
    document.getElementById("timeline-path").setAttribute("aria-pressed", String(only));
    this.arranged();
  }

  get isMost() { return document.getElementById("timeline").classList.contains("most"); }

  /** Give the timeline the whole window, or what it had. */
  maximise(most = !this.isMost) {
    document.getElementById("timeline").classList.toggle("most", most);
    document.getElementById("timeline-most").setAttribute("aria-pressed", String(most));
    document.body.classList.toggle("covered", most);
    this.view.resize();
  }

  /** Show the tracks whose title, or whose rank, fits a text or a /regular expression/. */
  filter(text) {
    const { data, view } = this;
    document.getElementById("timeline-filter").value = text;
    try {
      view.filter = text ? fitting(text, data.tracks.map(
        (track) => `${data.processes[track.process]} ${track.title}`)) : null;
    } catch { return; }  // an expression that is not complete yet
    this.arranged();
  }

  /** After tracks were shown, hidden or moved. */
  arranged() {
    const { view } = this;
    view.arrange();
    const button = document.getElementById("timeline-shown");
    button.hidden = !view.hidden.size;
    button.textContent = `show ${view.hidden.size} hidden`;
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

  /** Begin a drag: of the overview, of the time (with Shift, or by the axis), of a title, of an area. */
  #press(event) {
    if (event.button > 1) return;
    const { view } = this;
    const [x, y] = [event.offsetX, event.offsetY];
    const line = view.lineAt(y);
    let what = "area";
    if (y < MAP && x >= view.gutter) what = "map";
    else if (event.shiftKey || event.button === 1 || y < AXIS) what = "time";
    else if (x < view.gutter) what = line ? "title" : "head";
    this.pressed = { what, x: event.clientX, y: event.clientY, from: [x, y], moved: false, line };
    if (what === "map") view.overview.press(x);
    view.canvas.setPointerCapture(event.pointerId);
    if (event.button) event.preventDefault();
  }

  #move(event) {
    const { view, pressed } = this;
    const [x, y] = [event.offsetX, event.offsetY];
    if (!pressed) { this.#hover(event); return; }
    const [dx, dy] = [event.clientX - pressed.x, event.clientY - pressed.y];
    if (!pressed.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
    pressed.moved = true;
    this.tip.hidden = true;
    if (pressed.what === "map") {
      view.overview.drag(x);
    } else if (pressed.what === "time") {
      view.canvas.classList.add("dragged");
      view.pan(-dx);
      view.scroller.scrollTop -= dy;
      [pressed.x, pressed.y] = [event.clientX, event.clientY];
    } else if (pressed.what === "area") {
      view.areas.drawn = this.#areaTo(x, y);
      view.request();
    }
  }

  #areaTo(x, y) {
    const { view, pressed } = this;
    const times = [pressed.from[0], x].map(
      (at) => view.timeAt(Math.max(view.gutter, Math.min(at, view.width))));
    return {
      from: Math.round(Math.min(...times)), to: Math.round(Math.max(...times)),
      tracks: view.tracksBetween(pressed.from[1], y),
    };
  }

  #release(event) {
    const { view, pressed } = this;
    this.pressed = null;
    view.canvas.classList.remove("dragged");
    if (!pressed) return;
    view.canvas.focus({ preventScroll: true });
    const [x, y] = [event.offsetX, event.offsetY];
    if (pressed.moved) {
      view.areas.drawn = null;
      if (pressed.what === "area") {
        this.pressed = pressed;
        const area = this.#areaTo(x, y);
        this.pressed = null;
        this.area.choose(area);
      }
      if (pressed.what === "title") this.#dropTitle(pressed.line.track, y);
      return;
    }
    if (pressed.what === "map") view.overview.drag(x);
    else if (pressed.what === "title") this.#clickTitle(pressed.line.track, x);
    else if (pressed.what === "head") this.fold(view.processAt(y));
    else if (pressed.what === "area") {
      const found = view.eventAt(x, y);
      const line = view.lineAt(y);
      if (line) view.chosen = line.track.number;
      this.area.choose(null);
      this.select(found, false);
    }
  }

  #clickTitle(track, x) {
    const { view } = this;
    if (x > view.gutter - SIGNS - 6) view.hide(track.number);
    else if (x > view.gutter - 2 * SIGNS - 8) view.pin(track.number);
    else view.chosen = view.chosen === track.number ? -1 : track.number;
    this.arranged();
  }

  #dropTitle(track, y) {
    const line = this.view.lineAt(y);
    if (!line || line.fixed || line.track === track) return;
    if (line.track.process === track.process) this.view.move(track.number, line.track.number);
  }

  /** Hide or show the tracks of a process. */
  fold(process) {
    const { view } = this;
    if (process < 0) return;
    if (!view.closed.delete(process)) view.closed.add(process);
    this.arranged();
  }

  #hover(event) {
    const { view, data } = this;
    const [x, y] = [event.offsetX, event.offsetY];
    const line = view.lineAt(y);
    const over = x < view.gutter && line ? line.track.number : null;
    if (over !== view.hover) { view.hover = over; view.request(); }
    const found = view.eventAt(x, y);
    const counter = x >= view.gutter ? line?.track.counter : null;
    this.tip.hidden = found < 0 && !counter && over === null;
    if (this.tip.hidden) return;
    if (counter) {
      const alignment = data.alignmentOf(line.track.process);
      const time = view.timeAt(x);
      const value = counter.at(alignment ? alignment.recorded(time) : time);
      this.tip.textContent = `${line.track.title}: ${counter.told(value)}`;
    } else if (found < 0) {
      this.tip.textContent = `${data.processes[line.track.process]}, ${line.track.title}\n` +
        "☆ pins it, ✕ hides it, a drag moves it";
    } else {
      const name = data.nameOf(found);
      this.tip.textContent = [
        name.length > 600 ? `${name.slice(0, 600)}…` : name,
        `${formatTime(data.end[found] - data.start[found])}, ${data.categoryOf(found)}` +
          (data.critical[found] ? ", on the critical path" : ""),
      ].join("\n");
    }
    const right = event.clientX + 16 + this.tip.offsetWidth > window.innerWidth;
    this.tip.style.left = `${Math.max(
      right ? event.clientX - 8 - this.tip.offsetWidth : event.clientX + 12, 4)}px`;
    const low = event.clientY + 18 + this.tip.offsetHeight > window.innerHeight;
    this.tip.style.top = `${low ? event.clientY - 10 - this.tip.offsetHeight : event.clientY + 14}px`;
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
      m: () => this.maximise(), x: () => this.area.choose(this.inView()),
      k: () => this.area.keep(),
      p: () => this.#arrangeChosen((number) => view.pin(number)),
      h: () => this.#arrangeChosen((number) => view.hide(number)),
      Escape: () => this.#leave(),
    }[event.key];
    if (event.shiftKey && event.key.startsWith("Arrow")) {
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (by) this.#arrangeChosen((number) => view.shift(number, by));
      event.preventDefault();
    } else if (act) { act(); event.preventDefault(); }
  }

  #arrangeChosen(act) {
    const { view, data } = this;
    const number = view.selected >= 0 && view.chosen < 0
      ? data.trackOf(view.selected).number : view.chosen;
    if (number < 0) return;
    act(number);
    this.arranged();
  }

  /** Return the time in view, of the chosen track, or of all tracks in view. */
  inView() {
    const { view } = this;
    const tracks = view.chosen >= 0 ? [view.chosen] : view.tracksBetween(0, view.height);
    return { from: Math.round(view.from), to: Math.round(view.to), tracks };
  }

  #leave() {
    const { view } = this;
    if (view.areas.now) this.area.choose(null);
    else if (view.selected >= 0) this.select(-1);
    else if (this.isMost) this.maximise(false);
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
    const [begin, end] = data.span(event);
    const length = Math.max(end - begin, 10);
    view.show(begin - length * 0.3, end + length * 0.3);
    this.select(event);
  }

  search(text) {
    const { view } = this;
    let found = { fits: null, events: [] };
    try {
      if (text) found = this.data.find(text);
      this.number.textContent =
        text ? `${formatCount(found.events.length)} found` : "";
    } catch (error) {
      this.number.textContent = error.message;  // no regular expression
    }
    view.found = found.fits;
    this.matches = found.events;
    this.match = -1;
    showResults(this, text, found);
    view.request();
  }

  next(by) {
    const size = this.matches.length;
    if (!size) return;
    this.match = this.match < 0 ? (by > 0 ? 0 : size - 1) : (this.match + by + size) % size;
    this.number.textContent =
      `${formatCount(this.match + 1)} of ${formatCount(size)}`;
    this.select(this.matches[this.match]);
  }

  select(event, reveal = true) {
    this.view.selected = event;
    if (event >= 0) this.view.chosen = this.data.trackOf(event).number;
    if (event >= 0 && reveal) this.view.reveal(event);
    this.#describe(event);
    this.view.request();
  }

  /** Write the details of an event, all of it as text. */
  #describe(event) {
    const { data, details } = this;
    details.replaceChildren();
    showSide();
    if (event < 0) return;
    add(details, "h3", data.nameOf(event));
    const list = add(details, "dl");
    const track = data.trackOf(event);
    if (data.short[data.code[event]] !== data.nameOf(event)) {
      add(list, "dt", "shown as");
      add(list, "dd", data.short[data.code[event]]);
    }
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
    showSide();
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
    new TimelineLink(controls);
    return { data, view, controls, openTime: performance.now() - begun };
  } catch (error) {
    status.textContent = `The timeline cannot be shown: ${error.message}`;
    throw error;
  }
}
