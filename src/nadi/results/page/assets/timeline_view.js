// The drawing of the timeline: rows of events on a canvas, and what lies over them.
"use strict";

const TRACK_FONT = "11px system-ui, 'Liberation Sans', sans-serif";
const ROW = 17;         // pixels of a row, with 1 of space
const PATH_ROW = 13;
const HEAD = 24;        // of a process
const GAP = 5;          // below a track
const MAP = 38;         // of the overview above the time axis
const AXIS = MAP + 26;  // of both, which stay on top
const CURVE = 34;       // of a counter
const SIGNS = 17;       // of each sign beside the title under the pointer
const TEXT = 6.3;       // pixels of a letter, about
const PATH_COLORS = {
  "host op": "--host", "host gap": "--gap", launch: "--launch", kernel: "--kernel",
  communication: "--comm", delay: "--delay", memory: "--copy",
};
// hue and its range, and how colorful, by category: names differ within the range
const HUES = {
  annotation: [265, 30, 22], device_annotation: [265, 30, 22], python: [35, 20, 25],
  operator: [195, 50, 45], runtime: [330, 25, 30], driver: [330, 25, 30],
  kernel: [120, 60, 42], memcpy: [185, 15, 55], memset: [185, 15, 55], sync: [5, 10, 45],
  metadata: [210, 10, 8],
};
const COMMUNICATES = [26, 10, 75];

class TimelineView {
  constructor(data, canvas, scroller) {
    this.data = data;
    this.canvas = canvas;
    this.scroller = scroller;
    this.paper = canvas.getContext("2d", { alpha: false });
    this.closed = new Set();   // processes whose rows are hidden
    this.selected = -1;
    this.found = null;         // names that fit a search
    this.pathOnly = false;
    this.pins = [];            // numbers of tracks, as the next three
    this.hidden = new Set();
    this.moved = new Map();    // by process, where a person put the tracks
    this.chosen = -1;
    this.filter = null;        // which tracks fit
    this.areas = { now: null, kept: null, drawn: null };
    this.widths = new Float32Array(data.names.length);  // of names, in pixels, once drawn
    this.shape = 0;            // how often lines or colors changed
    this.hover = null;         // the track whose title is under the pointer
    const [begin, end] = data.window || [data.begin, data.lastEnd];
    const margin = (end - begin) * 0.01 || 1000;
    this.home = [begin - margin, end + margin];
    [this.from, this.to] = this.home;
    this.pathEvents = [];
    for (const track of data.tracks) {
      if (track.isPath) for (const row of track.rows) {
        for (let i = row.first; i < row.last; i++) this.pathEvents.push(i);
      }
    }
    this.overview = new Overview(this);
    this.readColors();
    this.layOut();
    scroller.style.height = `max(200px, min(${this.total + 2}px, 100vh - 190px))`;
    this.resize();
    const head = this.heads.find((one) => one.process === data.focus);
    if (head) scroller.scrollTop = head.y - this.top;
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    this.shape += 1;
    this.color = Object.fromEntries(
      ["ground", "card", "ink", "soft", "line", "accent", "mark", "dim", "idle", "hover",
       "kernel", "comm"].map(
        (name) => [name, color(`--${name}`)]));
    this.eventText = color("--event-text");
    const light = parseFloat(color("--event-light"));
    this.fills = this.data.names.map(([name, category], code) => {
      if (category === "critical path") return color(PATH_COLORS[name] || "--delay");
      let hash = 7;
      for (let i = 0; i < Math.min(name.length, 200); i++) {
        hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
      }
      let [hue, range, vivid] = HUES[category] || HUES.metadata;
      if (this.data.types[code] === 2) [hue, range, vivid] = COMMUNICATES;
      return `hsl(${hue + hash % range} ${vivid}% ${light + (hash >> 8) % 9 - 4}%)`;
    }).map((fill) => {  // as the canvas writes it, which takes no time to read again
      this.paper.fillStyle = fill;
      return this.paper.fillStyle;
    });
  }

  /** Place processes, tracks and rows; places are pixels from the top of all, pins on the canvas. */
  layOut() {
    this.shape += 1;
    this.lines = [];
    this.heads = [];
    this.tops = new Map();
    let y = AXIS;
    const put = (track, fixed) => {
      const tall = track.isPath ? PATH_ROW : ROW;
      const height = track.counter ? CURVE : tall * track.rows.length;
      this.lines.push({ track, y, height, fixed });
      for (const row of track.rows) this.tops.set(row.number, [y + tall * row.depth, tall, fixed]);
      y += height + GAP;
    };
    for (const number of this.pins) put(this.data.tracks[number], true);
    this.top = this.pins.length ? y + 3 : y;  // rows that scroll begin here
    y = this.top;
    this.data.processes.forEach((title, process) => {
      const shown = this.tracksOf(process).filter((track) => this.isShown(track));
      if (this.filter && !shown.length) return;
      this.heads.push({ process, title, y });
      y += HEAD;
      if (!this.closed.has(process)) for (const track of shown) put(track, false);
    });
    this.total = y + 8;
  }

  /** Return the tracks of a process in the order in which they are shown. */
  tracksOf(process) {
    const own = this.data.tracks.filter((track) => track.process === process);
    const order = this.moved.get(process);
    return order ? order.map((number) => this.data.tracks[number]) : own;
  }

  isShown(track) {
    if (this.hidden.has(track.number) || this.pins.includes(track.number)) return false;
    if (this.filter && !this.filter[track.number]) return false;
    return !this.pathOnly || track.isPath || this.#carriesPath(track);
  }

  /** Put a track before another one of its process, or at the end. */
  move(number, before) {
    const { process } = this.data.tracks[number];
    const order = this.tracksOf(process).map((track) => track.number);
    order.splice(order.indexOf(number), 1);
    const place = order.indexOf(before);
    order.splice(place < 0 ? order.length : place, 0, number);
    this.moved.set(process, order);
    this.arrange();
  }

  /** Move a track one place up or down among those that are shown. */
  shift(number, by) {
    const shown = this.tracksOf(this.data.tracks[number].process)
      .filter((track) => this.isShown(track)).map((track) => track.number);
    const place = shown.indexOf(number);
    if (place < 0 || place + by < 0) return;
    this.move(number, shown[place + (by > 0 ? 2 : -1)] ?? -1);
  }

  pin(number) {
    const place = this.pins.indexOf(number);
    if (place < 0) this.pins.push(number); else this.pins.splice(place, 1);
    this.arrange();
  }

  hide(number) {
    this.pins = this.pins.filter((one) => one !== number);
    this.hidden.add(number);
    this.arrange();
  }

  arrange() {
    this.layOut();
    this.resize();
  }

  #carriesPath(track) {
    track.onPath ??= track.rows.some((row) => {
      for (let i = row.first; i < row.last; i++) if (this.data.marked[i]) return true;
      return false;
    });
    return track.onPath;
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.scroller.clientWidth;
    this.height = this.scroller.clientHeight;
    this.paper.font = TRACK_FONT;
    const widths = this.data.tracks.map((track) => this.paper.measureText(track.title).width);
    const wanted = widths.reduce((a, b) => Math.max(a, b), 0) + 18 + 10;
    this.gutter = Math.min(Math.max(124, wanted), Math.max(124, this.width * 0.25));
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.paper.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paper.font = TRACK_FONT;  // a new size forgets these
    this.paper.textBaseline = "middle";
    this.overview.forget();
    // the last rank too can be scrolled to the top, where a page opens that blames it
    const below = this.total - this.height;
    const room = below > 0 ? Math.max(below, (this.heads.at(-1)?.y ?? 0) - this.top) : 0;
    this.scroller.querySelector("#timeline-room").style.height = `${room}px`;
    this.request();
  }

  get scale() { return (this.width - this.gutter) / (this.to - this.from); }
  x(time) { return this.gutter + (time - this.from) * this.scale; }
  timeAt(x) { return this.from + (x - this.gutter) / this.scale; }

  request() {
    this.changed?.();
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.draw(); });
  }

  show(from, to) {
    const least = 20;
    if (to - from < least) [from, to] = [(from + to - least) / 2, (from + to + least) / 2];
    const whole = this.data.lastEnd - this.data.begin + 1000;
    const most = whole * 1.1;
    if (to - from > most) {
      [from, to] = [this.data.begin - whole * 0.05, this.data.begin + whole * 1.05];
    }
    const span = to - from;
    const early = this.data.begin - Math.min(span, whole * 0.1);
    const late = this.data.lastEnd + Math.min(span, whole * 0.1);
    if (from < early) [from, to] = [early, early + span];
    if (to > late) [from, to] = [late - span, late];
    [this.from, this.to] = [from, to];
    this.request();
  }

  zoom(factor, x = (this.gutter + this.width) / 2) {
    const time = this.timeAt(Math.max(x, this.gutter));
    this.show(time - (time - this.from) * factor, time + (this.to - time) * factor);
  }

  pan(pixels) { this.show(this.from + pixels / this.scale, this.to + pixels / this.scale); }

  /** Bring an event into view: its row, and its time if it is outside or tiny. */
  reveal(event) {
    const { data } = this;
    const track = data.trackOf(event);
    if (!this.tops.has(data.rowOf[event])) {
      this.closed.delete(track.process);
      this.hidden.delete(track.number);
      this.pathOnly = false;
      this.filter = null;
      this.arrange();
    }
    const [begin, end] = data.span(event);
    const length = Math.max(end - begin, 1);
    if (end < this.from || begin > this.to || length * this.scale < 4) {
      const span = Math.max(length * 12, 2000);
      this.show((begin + end - span) / 2, (begin + end + span) / 2);
    }
    const [top, height, fixed] = this.tops.get(data.rowOf[event]);
    const seen = this.scroller.scrollTop;
    if (!fixed && (top < seen + this.top || top + height > seen + this.height)) {
      this.scroller.scrollTop = Math.max(top - this.height / 2, 0);
    }
    this.request();
  }

  /** Return where a row or a line is on the canvas. */
  place([y, height, fixed]) { return [fixed ? y : y - this.scroller.scrollTop, height]; }
  placeOfRow(number) {
    const found = this.tops.get(number);
    return found ? this.place(found) : null;
  }

  /** Return the line at a height of the canvas. */
  lineAt(y) {
    if (y < AXIS) return null;
    const isFixed = y < this.top;
    const inside = isFixed ? y : y + this.scroller.scrollTop;
    return this.lines.find((line) =>
      line.fixed === isFixed && inside >= line.y && inside < line.y + line.height) ?? null;
  }

  /** Return the event at a place of the canvas, or -1. */
  eventAt(x, y) {
    const line = x < this.gutter ? null : this.lineAt(y);
    if (!line || line.track.counter) return -1;
    const { track } = line;
    const inside = line.fixed ? y : y + this.scroller.scrollTop;
    const row = track.rows[Math.floor((inside - line.y) / (track.isPath ? PATH_ROW : ROW))];
    if (!row) return -1;
    const [time, reach] = [this.timeAt(x), 3 / this.scale];
    const { alignment } = row;
    const found = this.data.at(row, alignment ? alignment.recorded(time) : time, reach);
    const [begin, end] = found < 0 ? [Infinity, 0] : this.data.span(found);
    return begin - reach <= time && time <= end + reach ? found : -1;  // not in the gap after a step
  }

  /** Return the numbers of the tracks with operations between two heights of the canvas. */
  tracksBetween(one, other) {
    const [low, high] = [Math.min(one, other), Math.max(one, other)];
    return this.lines.filter((line) => {
      if (line.track.isPath || line.track.counter) return false;
      const [y, height] = this.place([line.y, line.height, line.fixed]);
      return y < high && y + height > low && high > (line.fixed ? 0 : this.top);
    }).map((line) => line.track.number);
  }

  processAt(y) {
    if (y < this.top) return -1;
    const inside = y + this.scroller.scrollTop;
    return this.heads.find((head) => inside >= head.y && inside < head.y + HEAD)?.process ?? -1;
  }

  draw() {
    const begun = performance.now();
    const { paper, color } = this;
    const scroll = this.scroller.scrollTop;
    this.#drawScene(scroll);
    if (this.selected >= 0) this.#drawSelected();
    drawAreas(this, false);
    this.#drawGutter(scroll);
    if (this.pins.length) {
      paper.fillStyle = color.card;
      paper.fillRect(0, AXIS, this.width, this.top - AXIS);
      this.#drawGrid(AXIS, this.top);
      this.#drawLines(true);
      drawAreas(this, true);
      paper.fillStyle = color.line;
      paper.fillRect(0, this.top - 2, this.width, 2);
      this.#drawTitles(true);
    }
    this.#drawAxis();
    this.overview.draw();
    this.drawTime = performance.now() - begun;
    this.frames = (this.frames || 0) + 1;
  }

  /** Draw what scrolls; while nothing but areas and what is chosen changes, it is drawn once. */
  #drawScene(scroll) {
    const { paper, canvas } = this;
    const state = [this.from, this.to, scroll, canvas.width, canvas.height, this.shape].join();
    const isSame = state === this.drawnState && this.found === this.drawnFound;
    [this.drawnState, this.drawnFound] = [state, this.found];
    if (!isSame) this.scene = null;
    if (this.scene) { paper.drawImage(this.scene, 0, 0, this.width, this.height); return; }
    paper.fillStyle = this.color.card;
    paper.fillRect(0, 0, this.width, this.height);
    this.#drawGrid(AXIS, this.height);
    this.#drawGaps(scroll);
    this.#drawLines(false);
    this.#drawPathLinks();
    if (!isSame) return;
    this.scene = document.createElement("canvas");
    [this.scene.width, this.scene.height] = [canvas.width, canvas.height];
    this.scene.getContext("2d", { alpha: false }).drawImage(canvas, 0, 0);
  }

  #drawLines(fixed) {
    const level = this.data.levelFor(1.5 / this.scale);
    const { paper } = this;
    this.filled = -1;
    const least = fixed ? 0 : this.top;
    for (const line of this.lines) {
      if (line.fixed !== fixed) continue;
      const [y, height] = this.place([line.y, line.height, fixed]);
      if (y + height < least || y > this.height) continue;
      if (line.track.counter) { this.overview.curve(line.track, y, height); continue; }
      for (const row of line.track.rows) {
        const [top, tall] = this.placeOfRow(row.number);
        if (top + tall < least || top > this.height) continue;
        if (level < 0) this.#drawEvents(row, top, tall - 1);
        else this.#drawRuns(row, top, tall - 1, level);
      }
    }
  }

  #drawEvents(row, y, height) {
    const { data } = this;
    const { alignment } = row;
    const [from, to] = this.#recorded(alignment);
    const first = Math.max(bound(data.start, row.first, row.last, from) - 1, row.first);
    const stop = bound(data.start, row.first, row.last, to);
    let drawn = -1;
    for (let i = first; i < stop; i++) {
      const right = this.x(alignment ? alignment.axis(data.end[i], true) : data.end[i]);
      if (right < this.gutter || right < drawn) continue;
      const left = this.x(alignment ? alignment.axis(data.start[i]) : data.start[i]);
      drawn = this.#block(left, right, y, height, data.code[i], data.marked[i], 1);
      const room = Math.min(right, this.width) - Math.max(left, this.gutter);
      if (room > 24 && height > 13) this.#name(i, Math.max(left, this.gutter), room, y, height);
    }
  }

  #drawRuns(row, y, height, level) {
    const { data } = this;
    const runs = data.runs(level);
    const { alignment } = row;
    const [from, to] = this.#recorded(alignment);
    const begin = bound(data.start, row.first, row.last, from) - 1;
    const least = Math.max(bound(runs.first, 0, runs.first.length, Math.max(begin, row.first)) - 1, 0);
    let drawn = -1;
    for (let run = least; run < runs.longest.length; run++) {
      const event = runs.first[run];
      if (event >= row.last || data.start[event] > to) break;
      const last = runs.first[run + 1] - 1;
      const right = this.x(alignment ? alignment.axis(data.end[last], true) : data.end[last]);
      if (right < this.gutter || right < drawn) continue;
      const left = this.x(alignment ? alignment.axis(data.start[event]) : data.start[event]);
      const length = data.end[last] - data.start[event];
      const share = length > 0 ? Math.max(runs.busy[run] / length, 0.25) : 1;
      const example = runs.longest[run];
      drawn = this.#block(left, right, y, height, data.code[example], runs.critical[run], share);
      const room = Math.min(right, this.width) - Math.max(left, this.gutter);
      if (event === last && room > 24 && height > 13) {
        this.#name(event, Math.max(left, this.gutter), room, y, height);
      }
    }
  }

  /** Return the recorded times in view. */
  #recorded(alignment) {
    const { from, to } = this;
    return alignment ? [alignment.recorded(from), alignment.recorded(to)] : [from, to];
  }

  /** Draw a block and return where the next one may begin. */
  #block(left, right, y, height, code, critical, share) {
    const { paper } = this;
    const begin = Math.max(left, this.gutter);
    const wide = Math.max(Math.min(right, this.width) - begin, 0.7);
    const fits = !this.found || this.found[code];
    if (share < 1 || !fits) paper.globalAlpha = fits ? share : 0.16;
    if (this.filled !== code) paper.fillStyle = this.fills[this.filled = code];
    paper.fillRect(begin, y, wide > 3 ? wide - 0.5 : wide, height);
    if (share < 1 || !fits) paper.globalAlpha = 1;
    if (critical && height > 13) {
      this.filled = -1;
      paper.fillStyle = this.color.mark;
      paper.fillRect(begin, y + height - 3, wide, 3);
    }
    return begin + wide - 0.35;
  }

  #name(event, left, room, y, height) {
    const code = this.data.code[event];
    if (this.found && !this.found[code]) return;
    const shown = this.#beginning(code, room - 6);
    if (shown.length < 3) return;
    this.filled = -1;
    this.paper.fillStyle = this.eventText;
    this.paper.fillText(shown, left + 4, y + height / 2 + 0.5);
  }

  /** Return a name, or as much of it as there is room for, in pixels. */
  #beginning(code, room) {
    const { paper } = this;
    const text = this.data.short[code];
    const wide = this.widths[code] ||= paper.measureText(text).width;
    if (wide <= room) return text;
    let letters = Math.floor(text.length * room / wide);
    let shown = "";
    do shown = `${text.slice(0, --letters)}…`;
    while (letters > 1 && paper.measureText(shown).width > room);
    return letters > 1 ? shown : "";
  }

  /** Return where the critical path goes from row to row: times on the axis, and the rows. */
  #pathLinks() {
    const { data } = this;
    const schedule = (event) => data.scheduleOf[data.trackOf(event).process];
    const events = this.pathEvents.slice().sort((a, b) =>
      schedule(a) - schedule(b) || data.start[a] - data.start[b] || data.end[a] - data.end[b]);
    const links = [];
    for (let i = 1; i < events.length; i++) {
      const [a, b] = [events[i - 1], events[i]];
      if (data.rowOf[a] === data.rowOf[b] || data.end[a] !== data.start[b]) continue;
      if (schedule(a) === schedule(b)) links.push([data.span(b)[0], data.rowOf[a], data.rowOf[b]]);
    }
    links.sort(([a], [b]) => a - b);
    return { time: links.map(([time]) => time), links };
  }

  /** Connect the critical path where it goes from rank to rank. */
  #drawPathLinks() {
    const { paper } = this;
    const { time, links } = this.pathLinks ??= this.#pathLinks();
    paper.strokeStyle = this.color.mark;
    paper.lineWidth = 1.2;
    paper.beginPath();
    let drawn = 0;
    for (let i = bound(time, 0, time.length, this.from - 1); drawn < 400 && time[i] <= this.to; i++) {
      const [one, other] = [this.placeOfRow(links[i][1]), this.placeOfRow(links[i][2])];
      if (!one || !other) continue;
      const x = this.x(time[i]);
      paper.moveTo(x, one[0] + 6);
      paper.lineTo(x, other[0] + 6);
      drawn++;
    }
    paper.stroke();
  }

  #drawSelected() {
    const { data, paper, color } = this;
    const box = (event) => {
      const place = this.placeOfRow(data.rowOf[event]);
      if (!place) return null;
      return [...data.span(event).map((time) => this.x(time)), place[0], place[1] - 1];
    };
    const own = box(this.selected);
    if (!own) return;
    const { before, after } = data.dependencies(this.selected);
    const arrow = (from, to, dependency) => {
      const [one, other] = [box(from), box(to)];
      if (!one || !other) return;
      // a synchronization ends after what it waits for; others begin after it
      const atEnd = dependency.kind === "sync";
      const [x1, x2] = [one[1], atEnd ? other[1] : other[0]];
      const [y1, y2] = [one[2] + one[3] / 2, other[2] + other[3] / 2];
      paper.setLineDash(dependency.inferred ? [5, 3] : []);
      paper.beginPath();
      paper.moveTo(x1, y1);
      const bend = Math.max(Math.min(Math.abs(x2 - x1) / 2, 60), 14);
      paper.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
      paper.stroke();
      paper.setLineDash([]);
      paper.beginPath();
      paper.moveTo(x2, y2);
      paper.lineTo(x2 - 7, y2 - 4);
      paper.lineTo(x2 - 7, y2 + 4);
      paper.fill();
      const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
      if (Math.abs(x2 - x1) + Math.abs(y2 - y1) > 40) paper.fillText(dependency.kind, x + 4, y - 6);
    };
    paper.lineWidth = 1.6;
    paper.strokeStyle = paper.fillStyle = color.accent;
    for (const one of before.slice(0, 40)) arrow(one.event, this.selected, one);
    paper.strokeStyle = paper.fillStyle = color.ink;
    for (const one of after.slice(0, 40)) arrow(this.selected, one.event, one);
    paper.strokeStyle = color.ink;
    paper.lineWidth = 2;
    paper.strokeRect(own[0] - 1, own[2] - 1, Math.max(own[1] - own[0], 1) + 2, own[3] + 2);
  }

  #drawGutter(scroll) {
    const { paper, color } = this;
    paper.fillStyle = color.card;
    paper.fillRect(0, 0, this.gutter, this.height);
    paper.fillStyle = color.line;
    paper.fillRect(this.gutter - 1, 0, 1, this.height);
    for (const head of this.heads) {
      const y = head.y - scroll;
      if (y + HEAD < 0 || y > this.height) continue;
      paper.fillStyle = color.hover;
      paper.fillRect(0, y, this.width, HEAD - 4);
      paper.fillStyle = color.ink;
      paper.font = "600 12px system-ui, 'Liberation Sans', sans-serif";
      const sign = this.closed.has(head.process) ? "▸" : "▾";
      paper.fillText(`${sign} ${head.title}`, 6, y + (HEAD - 4) / 2);
      this.#drawSteps(head, y);
    }
    this.#drawTitles(false);
  }

  /** Write the steps of a process beside its title: how long each takes, and how much longer. */
  #drawSteps({ process }, y) {
    const { data, paper, color } = this;
    const schedule = data.scheduleOf[process];
    const alignment = data.alignmentOf(process);
    const place = (time, isEnd) => this.x(alignment ? alignment.axis(time, isEnd) : time);
    paper.font = TRACK_FONT;
    (data.steps[schedule] ?? []).forEach(([number, begin, end], k) => {
      const [left, right] = [Math.max(place(begin), this.gutter), Math.min(place(end, true), this.width)];
      if (right <= left) return;
      paper.fillStyle = color.soft;
      if (left > this.gutter) paper.fillRect(left, y, 1, HEAD - 4);
      const before = schedule ? data.steps[0][k] : null;
      const longer = before ? ` (${signed(end - begin - (before[2] - before[1]))})` : "";
      const told = [`step ${number}: ${formatTime(end - begin)}${longer}`, formatTime(end - begin), `${number}`]
        .find((text) => text.length * TEXT + 6 < right - left);
      if (told) paper.fillText(told, left + 4, y + (HEAD - 4) / 2);
    });
  }

  /** Shade the time after a step in which the longer one of the other recording still runs. */
  #drawGaps(scroll) {
    const { data, paper, color } = this;
    this.heads.forEach(({ process, y }, i) => {
      const alignment = data.alignmentOf(process);
      if (!alignment) return;
      const bottom = (this.heads[i + 1]?.y ?? this.total) - scroll;
      paper.fillStyle = color.hover;
      for (const time of alignment.time) {
        const [left, right] = [alignment.axis(time, true), alignment.axis(time)].map((at) => this.x(at));
        if (right > left) paper.fillRect(left, y - scroll, right - left, bottom - y + scroll);
      }
    });
  }

  /** Write the titles of tracks; under the pointer stand signs to pin and to hide. */
  #drawTitles(fixed) {
    const { paper, color } = this;
    paper.font = TRACK_FONT;
    for (const { track, y: top, height, fixed: isFixed } of this.lines) {
      if (isFixed !== fixed) continue;
      const [y] = this.place([top, height, fixed]);
      if (y + height < 0 || y > this.height) continue;
      const isOver = this.hover === track.number;
      const room = this.gutter - 28 - (isOver ? 2 * SIGNS : 0);
      paper.save();
      paper.beginPath();
      paper.rect(0, y, this.gutter - 4, Math.max(height, 12));
      paper.clip();
      if (track.number === this.chosen) {
        paper.fillStyle = color.hover;
        paper.fillRect(0, y, this.gutter, height);
      }
      paper.fillStyle = track.isPath ? color.mark : color.soft;
      const middle = y + Math.min(height, ROW) / 2;
      const owner = fixed ? `${this.data.processes[track.process]}: ` : "";
      paper.fillText(this.#ending(owner + track.title, room), 18, middle);
      if (track.counter && height > 25) {
        const { counter } = track;
        paper.fillText(`to ${counter.told(counter.largest)}`, 18, middle + 14);
      }
      if (isOver) {
        paper.fillStyle = color.ink;
        paper.fillText(fixed ? "★" : "☆", this.gutter - 2 * SIGNS - 4, middle);
        paper.fillText("✕", this.gutter - SIGNS - 2, middle);
      }
      paper.restore();
    }
  }

  /** Return the end of a title that is too long: the numbers of threads and streams stand there. */
  #ending(title, room) {
    if (this.paper.measureText(title).width <= room) return title;
    let from = 1;
    while (from < title.length - 1 && this.paper.measureText(`…${title.slice(from)}`).width > room) {
      from += 1;
    }
    return `…${title.slice(from)}`;
  }

  #ticks() {
    const rough = (this.to - this.from) / Math.max((this.width - this.gutter) / 110, 2);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const found = [];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) found.push(at);
    return [found, step];
  }

  #drawGrid(from, to) {
    this.paper.fillStyle = this.color.line;
    for (const time of this.#ticks()[0]) this.paper.fillRect(this.x(time), from, 0.5, to - from);
  }

  #drawAxis() {
    const { paper, color } = this;
    paper.fillStyle = color.card;
    paper.fillRect(0, 0, this.width, AXIS);
    paper.font = TRACK_FONT;
    paper.fillStyle = color.line;
    paper.fillRect(0, AXIS - 1, this.width, 1);
    paper.fillStyle = color.soft;
    const [ticks, step] = this.#ticks();
    const [unit, size] = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]].find(
      ([, size]) => step >= size) || ["ns", 1];
    for (const time of ticks) {
      const x = this.x(time);
      if (x < this.gutter - 1) continue;
      paper.fillRect(x, AXIS - 6, 0.5, 6);
      const number = +(time / size).toFixed(3);
      const text = `${formatCount(number)} ${unit}`;
      if (x + text.length * TEXT < this.width) paper.fillText(text, x + 3, MAP + 12);
    }
    paper.fillText(`${formatTime(this.to - this.from)} shown`, 6, MAP + 12);
  }
}
