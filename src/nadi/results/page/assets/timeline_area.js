// What an area of the timeline holds: sums by name, stream, class and rank; two areas compared.
"use strict";

function add(parent, tag, text) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const WAYS = ["name", "stream", "class", "rank"];
const ROWS_SHOWN = 200;
const FIRST_ROWS = 40;  // of an area, which a drag writes anew

class AreaPanel {
  constructor(controls) {
    this.controls = controls;
    this.view = controls.view;
    this.data = controls.data;
    this.place = document.getElementById("timeline-area");
    this.way = "name";
    this.rows = [];
  }

  /** Choose an area: times in ns, and numbers of tracks; null for none. */
  choose(area) {
    this.view.areas.now = area && area.to > area.from && area.tracks.length ? area : null;
    this.show();
    this.view.request();
  }

  /** Keep the area, to compare the next one with it; or forget the kept one. */
  keep() {
    const { areas } = this.view;
    areas.kept = areas.now && areas.kept !== areas.now ? areas.now : null;
    this.show();
    this.view.request();
  }

  /** Sum an area in a way: a Map of titles to count, time and self time. */
  sums(area, way) {
    const { data } = this;
    const found = new Map();
    if (!area) return found;
    for (const { track, code, count, time, own } of data.sums(area.from, area.to, area.tracks)) {
      const rank = data.processes[track.process];
      const title = {
        name: data.names[code][0], stream: `${rank}, ${track.title}`, class: data.classOf(code),
        rank,
      }[way];
      const one = found.get(title) ?? found.set(title, { title, count: 0, time: 0, own: 0 }).get(title);
      if (way === "name") one.short = data.short[code];
      one.count += count;
      one.time += time;
      one.own += own;
    }
    return found;
  }

  show() {
    const { now, kept } = this.view.areas;
    this.place.replaceChildren();
    this.rows = [];
    if (now) {
      const other = kept === now ? null : kept;
      this.rows = this.#joined(this.sums(now, this.way), this.sums(other, this.way));
      this.#write(now, other);
    }
    showSide();
  }

  #joined(found, other) {
    const none = { count: 0, time: 0, own: 0 };
    const titles = new Set([...found.keys(), ...other.keys()]);
    const rows = [...titles].map((title) => {
      const [mine, kept] = [found.get(title) ?? { ...none, title }, other.get(title) ?? none];
      return { ...mine, title, short: mine.short ?? kept.short ?? title, kept };
    });
    const size = (row) => (other.size ? Math.abs(row.own - row.kept.own) : row.own);
    return rows.sort((a, b) => size(b) - size(a) || (a.title < b.title ? -1 : 1));
  }

  #write(now, other) {
    const { rows, place } = this;
    const whole = (key) => rows.reduce((sum, row) => sum + row[key], 0);
    const [count, own] = [whole("count"), whole("own")];
    add(place, "h3", `Area of ${formatTime(now.to - now.from)}`);
    const tracks = now.tracks.length;
    add(place, "p", `${formatCount(count)} events, ${formatTime(own)} on ` +
      `${tracks} ${tracks === 1 ? "track" : "tracks"}` +
      (other ? `; compared with the kept area of ${formatTime(other.to - other.from)}` : ""));
    const tools = add(place, "div");
    tools.className = "tools";
    for (const way of WAYS) {
      const button = add(tools, "button", `by ${way}`);
      button.className = "button";
      button.setAttribute("aria-pressed", String(way === this.way));
      button.addEventListener("click", () => { this.way = way; this.show(); });
    }
    const keep = add(tools, "button", this.view.areas.kept === now ? "kept" : "keep (K)");
    keep.className = "button";
    keep.setAttribute("aria-pressed", String(this.view.areas.kept === now));
    keep.addEventListener("click", () => this.keep());
    const heads = other
      ? ["", "count", "self", "kept count", "kept self", "difference"]
      : ["", "count", "sum", "self", "mean", "share"];
    const table = add(place, "table");
    const head = add(add(table, "thead"), "tr");
    heads.forEach((text, i) => {
      const cell = add(head, "th", i ? text : this.way);
      cell.scope = "col";
      if (i) cell.className = "num";
    });
    const body = add(table, "tbody");
    const write = (shown) => {
      for (const row of shown) {
        const line = add(body, "tr");
        const name = add(line, "td", row.short);
        name.className = "name";
        name.title = row.title;
        this.#cells(row, own, other !== null).forEach((text) => {
          add(line, "td", text).className = "num";
        });
      }
    };
    write(rows.slice(0, FIRST_ROWS));
    if (rows.length <= FIRST_ROWS) return;
    const more = add(place, "button", `${formatCount(rows.length - FIRST_ROWS)} more`);
    more.className = "button";
    more.addEventListener("click", () => { more.remove(); write(rows.slice(FIRST_ROWS)); });
  }

  #cells(row, own, compared) {
    const { count, time, kept } = row;
    if (compared) {
      const change = row.own - kept.own;
      return [formatCount(count), formatTime(row.own), formatCount(kept.count), formatTime(kept.own),
        `${change > 0 ? "+" : ""}${formatTime(change)}`];
    }
    return [formatCount(count), formatTime(time), formatTime(row.own),
      count ? formatTime(time / count) : "-", own ? `${(100 * row.own / own).toFixed(1)} %` : "-"];
  }
}

/** List what a search found: names with how often and how long, the longest first. */
function showResults(controls, text, found) {
  const place = document.getElementById("timeline-results");
  place.replaceChildren();
  if (text && found.events.length) {
    const { data } = controls;
    const codes = [...found.count.keys()].filter((code) => found.count[code]);
    codes.sort((a, b) => found.time[b] - found.time[a]);
    const whole = codes.reduce((sum, code) => sum + found.time[code], 0);
    add(place, "h3", `${formatCount(found.events.length)} events of ` +
      `${formatCount(codes.length)} names, ${formatTime(whole)}`);
    const list = add(place, "ul");
    const names = codes.map((code) => data.names[code][0]);
    for (const code of codes.slice(0, ROWS_SHOWN)) {
      const [name, category] = data.names[code];
      const isTwice = names.indexOf(name) !== names.lastIndexOf(name);
      const line = add(list, "li");
      const button = add(line, "button", data.short[code]);
      button.title = name;
      button.addEventListener("click", () => {
        const first = found.events.findIndex((event) => data.code[event] === code);
        controls.match = first - 1;
        controls.next(1);
      });
      add(line, "small", ` ${formatCount(found.count[code])}, ` +
        formatTime(found.time[code]) + (isTwice ? `, ${category}` : ""));
    }
    if (codes.length > ROWS_SHOWN) add(list, "li", `and ${codes.length - ROWS_SHOWN} more names`);
  }
  showSide();
}

/** Show what stands beside the timeline, if there is something. */
function showSide() {
  const side = document.getElementById("timeline-side");
  side.hidden = ![...side.children].some((one) => one.childNodes.length);
}

/** Say what the colors mean, of what is there. */
function showLegend(view) {
  const { data } = view;
  const place = document.getElementById("timeline-legend");
  place.replaceChildren();
  const used = new Map();
  data.names.forEach(([, category], code) => {
    if (category !== "critical path") {
      const title = data.types[code] === 2 ? "communication" : CLASSES[category] ?? category;
      if (!used.has(title)) used.set(title, view.fills[code]);
    }
  });
  for (const [title, fill] of [...used, ["critical path", view.color.mark]]) {
    const one = add(place, "span");
    const key = add(one, "span");
    key.className = "key";
    key.style.background = fill;
    one.append(title);
  }
}

const CLASSES = {
  driver: "runtime", memcpy: "copies and memory sets", memset: "copies and memory sets",
  device_annotation: "annotation", runtime: "runtime", kernel: "kernel",
};

/** Draw the areas that are chosen: the one that is kept is dashed. */
function drawAreas(view, fixed) {
  const { paper, color } = view;
  for (const [name, area] of Object.entries(view.areas)) {
    if (!area) continue;
    const left = Math.max(view.x(area.from), view.gutter);
    const wide = Math.min(view.x(area.to), view.width) - left;
    if (wide <= 0) continue;
    const wanted = new Set(area.tracks);
    paper.fillStyle = color.accent;
    paper.strokeStyle = name === "kept" ? color.mark : color.accent;
    paper.setLineDash(name === "kept" ? [4, 3] : []);
    paper.lineWidth = 1;
    for (const line of view.lines) {
      if (line.fixed !== fixed || !wanted.has(line.track.number)) continue;
      const [y, height] = view.place([line.y, line.height, fixed]);
      paper.globalAlpha = 0.14;
      paper.fillRect(left, y - 2, wide, height + 3);
      paper.globalAlpha = 1;
      paper.strokeRect(left + 0.5, y - 1.5, wide - 1, height + 2);
    }
    paper.setLineDash([]);
  }
}
