// The data of the timeline: unpacked columns, rows, levels of detail, and dependencies.
"use strict";

/** Unpack what `packed` of nadi/results/page/figures.py packed. */
async function unpack(text) {
  const content = await unzipped(text);
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
    this.scheduleOf = this.processes.map(([, schedule]) => schedule);
    this.alignments = this.later.map((breaks) => (
      breaks.some(([, by]) => by) ? new StepAlignment(breaks) : null));
    this.short = shortNames(this.names);
    this.text = Uint32Array.from(columns.text);
    this.node = summed(columns.node);
    this.#placeRows();
    this.#takeDependencies(columns);
    this.#markDeepest();
    this.#addCounters(columns);
    this.counts = header.levels.map((_, level) => columns[`level${level}`]);
    this.joined = header.levels.map(() => null);
  }

  #placeRows() {
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
      process, title, isPath, number, rows: [],
    }));
    for (const row of this.rows) this.tracks[row.track].rows.push(row);
    for (const row of this.rows) row.alignment = this.alignmentOf(this.tracks[row.track].process);
    for (const row of this.rows) if (row.alignment) for (let i = row.first; i < row.last; i++) {
      this.lastEnd = Math.max(this.lastEnd, row.alignment.axis(this.end[i], true));
    }
    for (const track of this.tracks) {
      const kind = track.rows.length ? this.categoryOf(track.rows[0].first) : "";
      track.isHost = HOST.has(kind);
      track.isDevice = DEVICE.has(kind) && track.title.startsWith("device");
    }
  }

  /** Of calls in each other that are on the path, mark the innermost alone. */
  #markDeepest() {
    this.marked = this.critical.slice();
    for (const track of this.tracks) {
      if (!track.isHost) continue;
      track.rows.forEach((row, depth) => {
        if (!depth) return;
        const above = track.rows[depth - 1];
        let outer = above.first;
        for (let i = row.first; i < row.last; i++) {
          if (!this.critical[i]) continue;
          while (outer < above.last && this.end[outer] < this.end[i]) outer++;
          if (outer < above.last && this.start[outer] <= this.start[i]) this.marked[outer] = 0;
        }
      });
    }
  }

  /** Counters are tracks without rows: those that the page brings, and those of its events. */
  #addCounters(columns) {
    this.numDrawn = this.tracks.length;
    const add = (process, title, unit, make) => this.tracks.push({
      process, title, isPath: false, number: this.tracks.length, rows: [],
      counter: new Counter(unit, make),
    });
    this.processes.forEach((_, process) => {
      const own = this.tracks.filter((track) => track.process === process && track.isDevice);
      if (own.length) {
        add(process, "device busy", "%", () => this.#busy(own, (type) => type >= 0));
        if (this.types.includes(2) && this.types.includes(1)) {
          add(process, "exposed communication", "%", () => this.#exposed(own));
        }
        if (this.dependencyKinds.includes("launch")) {
          add(process, "queue length", "", () => this.#queue(own));
        }
      }
      this.counters.forEach(([owner, title, unit], i) => {
        if (owner !== process) return;
        const time = summed(columns[`time${i}`], this.begin);
        add(process, title, unit, () => [time, summed(columns[`value${i}`])]);
      });
    });
  }

  /** Return when device work of some types runs: times and 1 or 0 from each on. */
  #busy(tracks, fits) {
    const begins = [];
    const ends = [];
    this.#work(tracks, (event, type) => {
      if (fits(type)) { begins.push(this.start[event]); ends.push(this.end[event]); }
    });
    return counted(begins, ends, (running) => (running > 0 ? 1 : 0));
  }

  #exposed(tracks) {
    const [time, any] = this.#busy(tracks, (type) => type === 1 || type === 2);
    const [computing, is] = this.#busy(tracks, (type) => type === 1);
    const all = [time, any, computing, is];
    return joined(all, (either, computes) => either - computes);
  }

  /** A launch makes the queue longer when it starts, and its work shorter when it starts. */
  #queue(tracks) {
    const launch = this.dependencyKinds.indexOf("launch");
    const begins = [];
    const ends = [];
    this.#work(tracks, (event) => {
      for (let edge = this.into[event]; edge < this.into[event + 1]; edge++) {
        if ((this.kind[edge] & 127) !== launch) continue;
        begins.push(this.start[this.source[edge]]);
        ends.push(this.start[event]);
        break;
      }
    });
    return counted(begins, ends, (running) => running);
  }

  #work(tracks, visit) {
    for (const track of tracks) for (const row of track.rows) {
      for (let i = row.first; i < row.last; i++) {
        if (DEVICE.has(this.names[this.code[i]][1])) visit(i, this.types[this.code[i]]);
      }
    }
  }

  /** How the steps of a process are placed on the axis; null where time and axis are the same. */
  alignmentOf(process) { return this.alignments[this.scheduleOf[process]] ?? null; }

  /** Where an event begins and ends on the axis. */
  span(event) {
    const { alignment } = this.rows[this.rowOf[event]];
    const [start, end] = [this.start[event], this.end[event]];
    return alignment ? [alignment.axis(start), alignment.axis(end, true)] : [start, end];
  }

  /** All events in order of time, without those of paths; sorted by digits when first wanted. */
  get byTime() {
    return (this.sorted ??= sortedBy(this.start, this.begin).filter(
      (event) => !this.trackOf(event).isPath));
  }

  /** What an event is: a type of device work, or its category. */
  classOf(code) {
    return [null, "computation", "communication", "memory"][this.types[code]]
      ?? this.names[code][1];
  }

  /** Return the innermost event around one, in the rows above a row of a track; or -1. */
  callerAbove(track, depth, event) {
    for (let at = depth - 1; at >= 0; at--) {
      const row = track.rows[at];
      const outer = bound(this.start, row.first, row.last, this.start[event]) - 1;
      if (outer >= row.first && this.end[outer] >= this.end[event]) return outer;
    }
    return -1;
  }

  /** Sum what overlaps a time range, per track and name: the time inside of it, and that alone. */
  sums(axisFrom, axisTo, tracks) {
    const found = [];
    const sums = this.scratch ??= new NameSums(this.names.length);
    for (const number of tracks) {
      const track = this.tracks[number];
      const alignment = this.alignmentOf(track.process);
      const [from, to] = [axisFrom, axisTo].map(
        (time) => (alignment ? alignment.recorded(time) : time));
      track.rows.forEach((row, depth) => this.#sumRow(row, track, depth, from, to, sums));
      for (const { code, count, time, own } of sums.taken()) {
        if (count) found.push({ track, code, count, time, own });
      }
    }
    return found;
  }

  /** Sum the events of a row in a time range: blocks that lie in it, and one by one the others. */
  #sumRow(row, track, depth, from, to, sums) {
    const { start, end } = this;
    const last = bound(start, row.first, row.last, to - 1);
    let first = Math.max(bound(start, row.first, row.last, from) - 1, row.first);
    if (first < last && end[first] <= from && start[first] < from) first++;
    const inner = first < last && start[first] < from ? first + 1 : first;
    const whole = last > inner && end[last - 1] > to ? last - 1 : last;
    const begin = Math.ceil((inner - row.first) / BLOCK);
    const stop = Math.floor((whole - row.first) / BLOCK);
    if (stop <= begin) { this.#sumEvents(row, track, depth, first, last, from, to, sums); return; }
    const blocks = this.#blocksOf(row, track, depth);
    const [left, right] = [row.first + begin * BLOCK, row.first + stop * BLOCK];
    this.#sumEvents(row, track, depth, first, left, from, to, sums);
    for (let i = blocks.first[begin]; i < blocks.first[stop]; i++) {
      sums.add(blocks.code[i], blocks.count[i], blocks.time[i], blocks.own[i]);
    }
    this.#sumEvents(row, track, depth, right, last, from, to, sums);
  }

  #sumEvents(row, track, depth, first, last, from, to, sums) {
    const { start, end, code } = this;
    const above = track.isHost && depth ? track.rows[depth - 1] : null;
    let outer = above && first < last
      ? Math.max(bound(start, above.first, above.last, start[first]) - 1, above.first) : 0;
    for (let i = first; i < last; i++) {
      const [begin, stop] = [start[i], end[i]];
      const inside = (stop < to ? stop : to) - (begin > from ? begin : from);
      sums.add(code[i], 1, inside, inside);
      if (!above) continue;
      while (outer < above.last && end[outer] < stop) outer++;
      const isIn = outer < above.last && start[outer] <= begin;
      const caller = isIn ? outer : this.callerAbove(track, depth - 1, i);
      if (caller >= 0) sums.add(code[caller], 0, 0, -inside);
    }
  }

  /** Return the sums of each so many events of a row, by name, one block after the other. */
  #blocksOf(row, track, depth) {
    if (row.blocks) return row.blocks;
    const sums = new NameSums(this.names.length);
    const [first, found] = [[0], []];
    for (let i = row.first; i + BLOCK <= row.last; i += BLOCK) {
      this.#sumEvents(row, track, depth, i, i + BLOCK, -Infinity, Infinity, sums);
      found.push(...sums.taken());
      first.push(found.length);
    }
    const column = (key) => Float64Array.from(found, (one) => one[key]);
    return (row.blocks = { first, code: Int32Array.from(found, (one) => one.code),
      count: column("count"), time: column("time"), own: column("own") });
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

  /** Join the events of all levels, and sum the rows, one by one while nothing else is to do. */
  prepare(level = 0) {
    const row = this.rows[level - this.levels.length];
    if (level < this.levels.length) {
      this.runs(level);
    } else if (row) {
      const track = this.tracks[row.track];
      this.#blocksOf(row, track, track.rows.indexOf(row));
    } else {
      this.byTime;
      return;
    }
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
        critical[run] |= this.marked[event];
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
    const next = (depth) => this.callerAbove(this.tracks[own.track], depth, event);
    for (let at = next(own.depth); at >= 0; at = next(this.rows[this.rowOf[at]].depth)) {
      found.push(at);
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

  /**
   * Return the events whose name has a text in it, or fits a /regular expression/, in order of
   * time; which names these are, and of each name how often it occurs and how long.
   */
  find(text) {
    const fits = fitting(text, this.names.map(([name, category]) =>
      (category === "critical path" ? "" : name)));
    const count = new Float64Array(this.names.length);
    const time = new Float64Array(this.names.length);
    const events = [];
    for (const event of this.byTime) {
      const code = this.code[event];
      if (!fits[code]) continue;
      events.push(event);
      count[code] += 1;
      time[code] += this.end[event] - this.start[event];
    }
    return { fits, events, count, time };
  }
}

const BLOCK = 512;  // events whose sums are kept

/** Sums by name: how often, how long, and how long alone. */
class NameSums {
  constructor(size) {
    [this.count, this.time, this.own] = [0, 1, 2].map(() => new Float64Array(size));
    this.isUsed = new Uint8Array(size);
    this.used = [];
  }

  add(code, count, time, own) {
    if (!this.isUsed[code]) { this.isUsed[code] = 1; this.used.push(code); }
    this.count[code] += count;
    this.time[code] += time;
    this.own[code] += own;
  }

  /** Return the sums of names that have some, and begin anew. */
  taken() {
    const found = this.used.map((code) => (
      { code, count: this.count[code], time: this.time[code], own: this.own[code] }));
    for (const code of this.used) {
      this.isUsed[code] = this.count[code] = this.time[code] = this.own[code] = 0;
    }
    this.used = [];
    return found;
  }
}

/** Steps of two recordings begin at the same places: times are later on the axis, step by step. */
class StepAlignment {
  constructor(breaks) {
    this.time = breaks.map(([time]) => time);
    this.by = breaks.map(([, by]) => by);
  }

  /** Return where a time is on the axis; an end lies in the step that it ends. */
  axis(time, isEnd = false) {
    const step = bound(this.time, 0, this.time.length, isEnd ? time - 1 : time) - 1;
    return step < 0 ? time : time + this.by[step];
  }

  /** Return the recorded time at a place of the axis: within a gap, that of the next step. */
  recorded(axis) {
    let step = this.time.length - 1;
    while (step >= 0 && axis < this.time[step] + this.by[step]) step--;
    const time = axis - (this.by[step] ?? 0);
    return Math.min(time, this.time[step + 1] ?? Infinity);
  }
}

const HOST = new Set(["annotation", "python", "operator", "runtime", "driver"]);
const DEVICE = new Set(["kernel", "memcpy", "memset"]);

/** A value over time: times in ns, the value from each on, and its sum over time until each. */
class Counter {
  constructor(unit, make) {
    this.unit = unit;
    this.make = make;
  }

  #fill() {
    [this.time, this.value] = this.make();
    this.make = null;
    this.area = new Float64Array(this.time.length);
    this.most = 0;
    for (let i = 0; i < this.time.length; i++) {
      if (i) {
        const lasts = this.time[i] - this.time[i - 1];
        this.area[i] = this.area[i - 1] + this.value[i - 1] * lasts;
      }
      if (this.value[i] > this.most) this.most = this.value[i];
    }
  }

  /** Return the value at a time. */
  at(time) {
    if (this.make) this.#fill();
    const place = bound(this.time, 0, this.time.length, time) - 1;
    return place < 0 ? 0 : this.value[place];
  }

  /** Return the sum of value by time until a time. */
  until(time) {
    if (this.make) this.#fill();
    const place = bound(this.time, 0, this.time.length, time) - 1;
    return place < 0 ? 0 : this.area[place] + this.value[place] * (time - this.time[place]);
  }

  /** Return the mean over a time range. */
  mean(from, to) {
    return to > from ? (this.until(to) - this.until(from)) / (to - from) : this.at(from);
  }

  get largest() {
    if (this.make) this.#fill();
    return this.most;
  }

  told(value) {
    if (this.unit === "%") return `${(100 * value).toFixed(1)} %`;
    if (this.unit === "bytes") return formatBytes(value);
    const units = {
      "MB/s": [["TB/s", 1e6], ["GB/s", 1e3], ["MB/s", 1]],
    }[this.unit] ?? [[this.unit, 1]];
    const [unit, size] = units.find(([, least]) => value >= least) ?? units[units.length - 1];
    return `${+(value / size).toPrecision(4)} ${unit}`.trim();
  }
}

/** Count what runs: beginnings and ends in any order to times and what `write` makes of numbers. */
function counted(begins, ends, write) {
  const up = Float64Array.from(begins).sort();
  const down = Float64Array.from(ends).sort();
  const time = new Float64Array(2 * up.length);
  const value = new Float64Array(2 * up.length);
  let [i, j, size] = [0, 0, 0];
  while (j < down.length) {
    const at = i < up.length && up[i] <= down[j] ? up[i] : down[j];
    while (i < up.length && up[i] === at) i++;
    while (j < down.length && down[j] === at) j++;
    const now = write(i - j);
    if (size && value[size - 1] === now) continue;
    time[size] = at;
    value[size++] = now;
  }
  return [time.subarray(0, size), value.subarray(0, size)];
}

/** Join two values over time into one. */
function joined([time, value, other, otherValue], write) {
  const times = [];
  const values = [];
  for (let i = 0, j = 0; i < time.length || j < other.length;) {
    const at = Math.min(time[i] ?? Infinity, other[j] ?? Infinity);
    while (time[i] === at) i++;
    while (other[j] === at) j++;
    times.push(at);
    values.push(write(i ? value[i - 1] : 0, j ? otherValue[j - 1] : 0));
  }
  return [Float64Array.from(times), Float64Array.from(values)];
}

/** Return places in the order of values, by 16 bits of the values at a time. */
function sortedBy(values, least) {
  const size = values.length;
  let order = new Int32Array(size).map((_, i) => i);
  let other = new Int32Array(size);
  let most = 0;
  for (let i = 0; i < size; i++) if (values[i] - least > most) most = values[i] - least;
  for (let unit = 1; unit <= most; unit *= 65536) {
    const first = new Int32Array(65537);
    const digit = (i) => Math.floor((values[i] - least) / unit) % 65536;
    for (let i = 0; i < size; i++) first[digit(i) + 1]++;
    for (let i = 0; i < 65536; i++) first[i + 1] += first[i];
    for (let i = 0; i < size; i++) other[first[digit(order[i])]++] = order[i];
    [order, other] = [other, order];
  }
  return order;
}

/** Return which texts a search fits: a part in any case, or a /regular expression/. */
function fitting(text, among) {
  const pattern = /^\/(.+)\/(i?)$/.exec(text);
  if (!pattern) {
    const wanted = text.toLowerCase();
    return Uint8Array.from(among, (one) => one !== "" && one.toLowerCase().includes(wanted));
  }
  const expression = new RegExp(pattern[1], pattern[2]);
  return Uint8Array.from(among, (one) => one !== "" && expression.test(one));
}

/** Return names without types, namespaces and parameters; those that would be equal get numbers. */
function shortNames(names) {
  const short = names.map(([name, category]) => (category === "kernel" ? shortName(name) : name));
  const alike = new Map();
  short.forEach((one, i) => {
    const whole = names[i][0];
    if (!alike.has(one)) alike.set(one, []);
    if (!alike.get(one).includes(whole)) alike.get(one).push(whole);
  });
  return short.map((one, i) => {
    const same = alike.get(one);
    return same.length > 1 ? `${one} #${same.sort().indexOf(names[i][0]) + 1}` : one;
  });
}

const FUNCTION = /([A-Za-z_]\w*)(?=[<(]|\b)/g;
const TELLING = /kernel|functor|_cuda|op$|ops$|reduce|softmax|norm|gemm|conv/i;

/** `void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, ...>(...)`
 * becomes `vectorized_elementwise_kernel<FillFunctor>`. */
function shortName(name) {
  if (!/[<(:]/.test(name)) return name;
  const plain = name.replace(/\(anonymous namespace\)::/g, "").replace(/^(void|static) /, "");
  const end = plain.search(/[<(]/);
  const base = (end < 0 ? plain : plain.slice(0, end)).split("::").pop().trim();
  if (!base || end < 0) return base || name;
  const inner = [];
  for (const [word] of plain.slice(end).matchAll(FUNCTION)) {
    if (TELLING.test(word) && word !== base && !inner.includes(word)) inner.push(word);
  }
  return inner.length ? `${base}<${inner.slice(0, 2).join(", ")}>` : base;
}

/** Return the first place in values[low..high) whose value is above `limit`; they ascend. */
function bound(values, low, high, limit) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low;
}

const COUNTS = new Intl.NumberFormat("en-US");
function formatCount(count) { return COUNTS.format(count); }

/** Write a time as Python's format_ns does: four digits and a unit. */
function formatTime(ns) {
  const units = [["s", 1e9], ["ms", 1e6], ["us", 1e3]];
  for (const [unit, size] of units) {
    if (Math.abs(ns) >= size) return `${fourDigits(ns / size)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

/** Write a size as Python's format_bytes does. */
function formatBytes(size) {
  for (const [unit, scale] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (Math.abs(size) >= scale) return `${fourDigits(size / scale)} ${unit}`;
  }
  return `${Math.round(size)} B`;
}

function fourDigits(value) {
  const digits = Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(digits, 3));
}
