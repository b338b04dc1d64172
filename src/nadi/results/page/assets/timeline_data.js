// The data of the timeline: unpacked columns, rows, levels of detail, and dependencies.
"use strict";

/** Unpack what nadi/report/page/timeline_blob.py packed. */
async function unpack(text) {
  const coded = atob(text);
  const bytes = new Uint8Array(coded.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = coded.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const content = new Uint8Array(await new Response(stream).arrayBuffer());
  const size = new DataView(content.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(content.subarray(4, 4 + size)));
  let at = 4 + size;
  const columns = {};
  for (const { name, size, planes } of header.columns) {
    const values = new Float64Array(size);
    for (const plane of planes) {
      const factor = 2 ** (8 * plane);
      for (let i = 0; i < size; i++) values[i] += factor * content[at + i];
      at += size;
    }
    if (name.endsWith("±")) {
      for (let i = 0; i < size; i++) {
        const value = values[i];
        values[i] = value % 2 ? -(value + 1) / 2 : value / 2;
      }
      columns[name.slice(0, -1)] = values;
    } else {
      columns[name] = values;
    }
  }
  return { header, columns };
}

function summed(differences, first = 0) {
  let sum = first;
  for (let i = 0; i < differences.length; i++) differences[i] = sum += differences[i];
  return differences;
}

/** Events of rows, in the order of rows and in each row of time; times are ns. */
class TimelineData {
  constructor({ header, columns }) {
    Object.assign(this, header);
    this.start = summed(columns.start, this.begin);
    this.size = this.start.length;
    this.end = columns.length;
    this.code = new Int32Array(this.size);
    this.critical = new Uint8Array(this.size);
    this.lastEnd = this.begin;
    for (let i = 0; i < this.size; i++) {
      this.end[i] += this.start[i];
      if (this.end[i] > this.lastEnd) this.lastEnd = this.end[i];
      this.critical[i] = columns.name[i] % 2;
      this.code[i] = columns.name[i] >> 1;
    }
    this.text = Uint32Array.from(columns.text);
    this.node = summed(columns.node);
    this.#placeRows();
    this.#takeDependencies(columns);
    this.counts = header.levels.map((_, level) => columns[`level${level}`]);
    this.joined = header.levels.map(() => null);
  }

  #placeRows() {
    this.scheduleOf = this.processes.map(([, schedule]) => schedule);
    this.processes = this.processes.map(([title]) => title);
    let first = 0;
    this.rowOf = new Uint16Array(this.rows.length < 65536 ? this.size : 0);
    if (!this.rowOf.length) this.rowOf = new Int32Array(this.size);
    this.rows = this.rows.map(([track, depth, count], number) => {
      const row = { track, depth, first, last: first + count, number };
      this.rowOf.fill(number, first, row.last);
      first = row.last;
      return row;
    });
    this.tracks = this.tracks.map(([process, title, isPath], number) => ({
      process, title, isPath, number, rows: this.rows.filter((row) => row.track === number),
    }));
  }

  /** Dependencies come in the order of their targets; those by source get an index. */
  #takeDependencies(columns) {
    this.target = Int32Array.from(summed(columns.dependencyTarget));
    const size = this.target.length;
    this.source = new Int32Array(size);
    this.kind = Uint8Array.from(columns.dependencyKind);
    this.into = new Int32Array(this.size + 1);
    this.from = new Int32Array(this.size + 1);
    for (let i = 0; i < size; i++) {
      this.source[i] = this.target[i] - columns.dependencySource[i];
      this.into[this.target[i] + 1]++;
      this.from[this.source[i] + 1]++;
    }
    for (let i = 0; i < this.size; i++) {
      this.into[i + 1] += this.into[i];
      this.from[i + 1] += this.from[i];
    }
    const next = this.from.slice();
    this.bySource = new Int32Array(size);
    for (let i = 0; i < size; i++) this.bySource[next[this.source[i]]++] = i;
  }

  /** Return the coarsest level whose joined events are about as narrow as `width` ns, or -1. */
  levelFor(width) {
    let level = -1;
    while (level + 1 < this.levels.length && this.levels[level + 1] <= width) level++;
    return level;
  }

  /** Join the events of all levels, one after the other, while nothing else is to do. */
  prepare(level = 0) {
    if (level >= this.levels.length) return;
    this.runs(level);
    setTimeout(() => this.prepare(level + 1), 0);
  }

  /** Return the runs of a level: the first event of each, its longest, and the busy time. */
  runs(level) {
    if (this.joined[level]) return this.joined[level];
    const counts = this.counts[level];
    const size = counts.length;
    const first = new Int32Array(size + 1);
    const longest = new Int32Array(size);
    const busy = new Float64Array(size);
    const critical = new Uint8Array(size);
    for (let run = 0, event = 0; run < size; run++) {
      first[run] = event;
      let best = -1;
      for (const stop = event + counts[run]; event < stop; event++) {
        const length = this.end[event] - this.start[event];
        busy[run] += length;
        critical[run] |= this.critical[event];
        if (length > best) { best = length; longest[run] = event; }
      }
    }
    first[size] = this.size;
    return (this.joined[level] = { first, longest, busy, critical });
  }

  nameOf(event) { return this.names[this.code[event]][0]; }
  textOf(event) { return this.texts[this.text[event]]; }
  categoryOf(event) { return this.names[this.code[event]][1]; }
  trackOf(event) { return this.tracks[this.rows[this.rowOf[event]].track]; }

  /** Return the event of a row at a time; else the nearest within `reach` ns; or -1. */
  at(row, time, reach) {
    const after = bound(this.start, row.first, row.last, time);
    let found = -1;
    let least = reach;
    for (const event of [after - 1, after]) {
      if (event < row.first || event >= row.last) continue;
      const away = Math.max(this.start[event] - time, time - this.end[event], 0);
      if (away <= least) { found = event; least = away; if (!away) break; }
    }
    return found;
  }

  /** Return the events around an event on its track, innermost first. */
  around(event) {
    const own = this.rows[this.rowOf[event]];
    const found = [];
    for (const row of this.tracks[own.track].rows) {
      if (row.depth >= own.depth) continue;
      const outer = bound(this.start, row.first, row.last, this.start[event]) - 1;
      if (outer >= row.first && this.end[outer] >= this.end[event]) found.unshift(outer);
    }
    return found;
  }

  /** Return the dependencies of an event: those it waits for, and those that wait for it. */
  dependencies(event) {
    const describe = (edge, other) => ({
      event: other,
      kind: this.dependencyKinds[this.kind[edge] & 127],
      inferred: this.kind[edge] > 127,
    });
    const before = [];
    const after = [];
    for (let edge = this.into[event]; edge < this.into[event + 1]; edge++) {
      before.push(describe(edge, this.source[edge]));
    }
    for (let at = this.from[event]; at < this.from[event + 1]; at++) {
      const edge = this.bySource[at];
      after.push(describe(edge, this.target[edge]));
    }
    return { before, after };
  }

  /** Return the events whose name has a text in it, in order of time, and which names these are. */
  find(text) {
    const wanted = text.toLowerCase();
    const fits = Uint8Array.from(this.names, ([name]) => name.toLowerCase().includes(wanted));
    const events = [];
    for (let i = 0; i < this.size; i++) {
      if (fits[this.code[i]] && !this.trackOf(i).isPath) events.push(i);
    }
    events.sort((a, b) => this.start[a] - this.start[b]);
    return { fits, events };
  }
}

/** Return the first place in values[low..high) whose value is above `limit`; they ascend. */
function bound(values, low, high, limit) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low;
}

/** Write a time as Python's format_ns does: four digits and a unit. */
function formatTime(ns) {
  const units = [["s", 1e9], ["ms", 1e6], ["us", 1e3]];
  for (const [unit, size] of units) {
    if (Math.abs(ns) >= size) return `${fourDigits(ns / size)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

function fourDigits(value) {
  const digits = Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(digits, 3));
}
