// The whole time above the timeline, and the curves of counters.
"use strict";

class Overview {
  constructor(view) {
    this.view = view;
    this.image = null;
  }

  forget() { this.image = null; }

  get begin() { return this.view.data.begin; }
  get length() { return Math.max(this.view.data.lastEnd - this.begin, 1); }

  x(time) {
    const { gutter, width } = this.view;
    return gutter + (time - this.begin) / this.length * (width - gutter);
  }

  timeAt(x) {
    const { gutter, width } = this.view;
    return this.begin + (x - gutter) / (width - gutter) * this.length;
  }

  /** Draw the strip, and what of it is in view. */
  draw() {
    const { view } = this;
    const { paper, color } = view;
    if (view.width - view.gutter < 20) return;
    this.image ??= this.#paint();
    paper.drawImage(this.image, view.gutter, 0, view.width - view.gutter, MAP);
    const [left, right] = [this.x(view.from), this.x(view.to)].map(
      (x) => Math.max(view.gutter, Math.min(view.width, x)));
    paper.fillStyle = color.dim;
    paper.fillRect(view.gutter, 0, left - view.gutter, MAP);
    paper.fillRect(right, 0, view.width - right, MAP);
    paper.strokeStyle = color.accent;
    paper.lineWidth = 1.5;
    paper.strokeRect(left + 0.5, 1, Math.max(right - left - 1, 2), MAP - 3);
    paper.fillStyle = color.soft;
    paper.fillText(`of ${formatTime(this.length)}`, 6, MAP / 2);
  }

  /** Paint how busy each rank is: its devices, or its operators where it has none. */
  #paint() {
    const { view } = this;
    const { data, color } = view;
    const image = document.createElement("canvas");
    image.width = Math.max(Math.floor(view.width - view.gutter), 1);
    image.height = MAP;
    const paper = image.getContext("2d");
    const size = image.width;
    const count = data.processes.length;
    const tall = (MAP - 4) / count;
    const cell = this.length / size;
    for (let process = 0; process < count; process++) {
      const own = data.tracks.filter((track) => track.process === process && track.rows.length);
      const devices = own.filter((track) => track.isDevice);
      const [works, talks] = [new Float64Array(size), new Float64Array(size)];
      for (const track of devices.length ? devices : own.filter((one) => one.isHost)) {
        for (const row of track.rows) this.#fill(row, cell, works, talks, devices.length > 0);
      }
      for (const [shares, fill] of [[works, color.kernel], [talks, color.comm]]) {
        paper.fillStyle = fill;
        for (let x = 0; x < size; x++) {
          if (!shares[x]) continue;
          paper.globalAlpha = Math.max(Math.min(shares[x] / cell, 1), 0.15);
          paper.fillRect(x, 2 + process * tall, 1, Math.max(tall - (tall > 3 ? 1 : 0), 0.5));
        }
      }
    }
    return image;
  }

  #fill(row, cell, works, talks, ofDevice) {
    const { data } = this.view;
    for (let i = row.first; i < row.last; i++) {
      const code = data.code[i];
      if (!ofDevice && data.names[code][1] !== "operator") continue;
      const into = data.types[code] === 2 ? talks : works;
      const { alignment } = row;
      const [start, stop] = [data.start[i], data.end[i]];
      let at = (alignment ? alignment.axis(start) : start) - this.begin;
      const end = Math.min((alignment ? alignment.axis(stop, true) : stop) - this.begin, this.length);
      while (at < end) {
        const bin = Math.min(Math.floor(at / cell), into.length - 1);
        const edge = bin === into.length - 1 ? end : Math.min(end, (bin + 1) * cell);
        into[bin] += Math.max(edge - at, 0);
        at = edge > at ? edge : end;
      }
    }
  }

  /** Draw a counter: each pixel has the mean over its time. */
  curve({ counter, process }, y, height) {
    const { view } = this;
    const alignment = view.data.alignmentOf(process);
    const until = (x) => {
      const time = view.timeAt(x);
      return counter.until(alignment ? alignment.recorded(time) : time);
    };
    const { paper, color } = view;
    const most = counter.largest || 1;
    paper.fillStyle = color.accent;
    view.filled = -1;
    paper.globalAlpha = 0.55;
    const begin = Math.floor(Math.max(view.x(this.begin), view.gutter));
    const end = Math.min(view.x(view.data.lastEnd), view.width);
    const pixel = 1 / view.scale;
    let before = until(begin);
    for (let x = begin; x < end; x++) {
      const after = until(x + 1);
      const tall = (height - 3) * Math.min((after - before) / pixel / most, 1);
      before = after;
      if (tall > 0) paper.fillRect(x, y + height - tall - 1, 1, tall);
    }
    paper.globalAlpha = 1;
    paper.fillStyle = color.line;
    paper.fillRect(view.gutter, y + height - 1, view.width - view.gutter, 1);
  }

  /** Begin a drag in the strip: of an edge of what is in view, or of all of it. */
  press(x) {
    const { view } = this;
    const near = (time) => Math.abs(this.x(time) - x) < 6;
    const isWhole = view.to - view.from >= this.length;
    this.held = near(view.from) ? "from" : near(view.to) ? "to" : "all";
    if (this.held === "all" && !isWhole) this.drag(x);
    return true;
  }

  drag(x) {
    const { view } = this;
    const time = this.timeAt(Math.max(view.gutter, Math.min(x, view.width)));
    const half = (view.to - view.from) / 2;
    if (this.held === "from") view.show(Math.min(time, view.to - 20), view.to);
    else if (this.held === "to") view.show(view.from, Math.max(time, view.from + 20));
    else view.show(time - half, time + half);
  }
}
