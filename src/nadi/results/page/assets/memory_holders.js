// Memory of a device over time, divided among those that hold it; who holds it at a chosen time.
"use strict";

const MEMORY_HEIGHT = 240;

class MemoryHolders {
  constructor(box, { header, columns }) {
    this.canvas = box.querySelector("canvas");
    this.place = box.querySelector(".holders");
    this.devices = header.devices.map(({ title, holders }, i) => {
      const column = (name) => summed(columns[`${name}${i}`]);
      const held = holders.map((_, k) => column(`held${k}-`));
      const device = { title, time: column("time"), allocated: column("allocated"),
        reserved: column("reserved"), holders, held };
      device.peak = device.allocated.indexOf(device.allocated.reduce((a, b) => Math.max(a, b), 0));
      // the largest at the peak lie at the bottom
      device.order = holders.map((_, k) => k).sort((a, b) => held[b][device.peak] - held[a][device.peak]);
      return device;
    });
    this.choice = box.querySelector("select");
    this.choice.addEventListener("change", () => this.open(Number(this.choice.value)));
    this.canvas.addEventListener("pointermove", (event) => this.choose(this.#nearest(event.offsetX)));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas.parentElement);
    this.open(0);
  }

  open(number) {
    this.device = this.devices[number];
    this.canvas.setAttribute("aria-valuemax", this.device.time.length - 1);
    this.choose(this.device.peak);
  }

  /** Choose one of the times: who holds the memory then is listed. */
  choose(at) {
    const { time, allocated, reserved, holders, held, order } = this.device;
    this.at = Math.max(0, Math.min(at, time.length - 1));
    const told = `${formatBytes(allocated[this.at])} at ${formatTime(time[this.at])}`;
    this.canvas.setAttribute("aria-valuenow", this.at);
    this.canvas.setAttribute("aria-valuetext", told);
    this.place.replaceChildren();
    const peak = this.at === this.device.peak ? ", the peak" : "";
    const more = reserved[this.at] ? `; reserved ${formatBytes(reserved[this.at])}` : "";
    add(this.place, "h3", `${told}${peak}${more}`);
    const body = add(add(this.place, "table"), "tbody");
    for (const k of order) {
      const size = held[k][this.at];
      const line = add(body, "tr");
      const name = add(line, "td");
      const key = add(name, "span");
      key.className = "key";
      key.style.background = this.color(k);
      name.append(holders[k]);
      name.className = "name";
      const cell = add(line, "td");
      cell.className = "num";
      add(cell, "data", formatBytes(size)).value = size;
      const whole = allocated[this.at];
      add(line, "td", whole ? `${(100 * size / whole).toFixed(1)} %` : "-").className = "num";
    }
    this.draw();
  }

  color(k) {
    const light = root.dataset.scheme === "dark" ? 58 : 52;
    return this.device.holders[k].startsWith("(") ? "var(--gap)" : `hsl(${(205 + 47 * k) % 360} 45% ${light}%)`;
  }

  x(time) {
    const { time: times } = this.device;
    const [begin, end] = [times[0], times[times.length - 1]];
    return end > begin ? (time - begin) / (end - begin) * this.width : 0;
  }

  #nearest(x) {
    const { time } = this.device;
    const begin = time[0];
    const wanted = begin + x / this.width * (time[time.length - 1] - begin);
    return bound(time, 0, time.length, wanted) - 1;
  }

  /** Draw steps: a value holds from its time until the next. */
  draw() {
    const { canvas, device } = this;
    const ratio = window.devicePixelRatio || 1;
    this.width = canvas.clientWidth;
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(MEMORY_HEIGHT * ratio);
    const paper = canvas.getContext("2d");
    paper.scale(ratio, ratio);
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(name).trim();
    const { time, allocated, reserved, held, order } = device;
    const most = [allocated, reserved].reduce((a, b) => Math.max(a, b.reduce((c, d) => Math.max(c, d), 0)), 1);
    const y = (size) => MEMORY_HEIGHT - size / most * (MEMORY_HEIGHT - 22);
    const right = (i) => (i + 1 < time.length ? this.x(time[i + 1]) : this.width);
    const bottom = new Float64Array(time.length);
    const layers = order.length ? order.map((k) => [held[k], this.color(k)]) : [[allocated, "var(--host)"]];
    for (const [sizes, fill] of layers) {
      paper.fillStyle = fill.startsWith("var") ? color(fill.slice(4, -1)) : fill;
      for (let i = 0; i < time.length; i++) {
        const [left, low] = [Math.round(this.x(time[i])), y(bottom[i])];
        bottom[i] += sizes[i];
        const wide = Math.max(Math.round(right(i)) - left, 1);  // whole pixels leave no seams
        if (sizes[i]) paper.fillRect(left, y(bottom[i]), wide, low - y(bottom[i]));
      }
    }
    paper.strokeStyle = color("--soft");
    paper.setLineDash([5, 3]);
    paper.beginPath();
    for (let i = 0; i < time.length; i++) {
      paper.lineTo(this.x(time[i]), y(reserved[i]));
      paper.lineTo(right(i), y(reserved[i]));
    }
    if (reserved.some((size) => size > 0)) paper.stroke();
    paper.setLineDash([]);
    paper.fillStyle = color("--ink");
    paper.fillRect(Math.min(this.x(time[this.at]), this.width - 1.5), 0, 1.5, MEMORY_HEIGHT);
    paper.font = TRACK_FONT;
    paper.fillStyle = color("--soft");
    paper.fillText(`${formatBytes(most)}, ${formatTime(time[time.length - 1] - time[0])}`, 4, 12);
  }

  #key(event) {
    const to = {
      ArrowLeft: this.at - 1, ArrowRight: this.at + 1, ArrowDown: this.at - 10, ArrowUp: this.at + 10,
      Home: 0, End: Infinity, p: this.device.peak,
    }[event.key];
    if (to === undefined) return;
    this.choose(to);
    event.preventDefault();
  }
}

/** Open the memory of the page, if it was recorded; window.nadiMemory tells when that is done. */
async function openMemory() {
  const box = document.querySelector(".held");
  return box ? new MemoryHolders(box, await unpack(box.querySelector("pre").textContent)) : null;
}
