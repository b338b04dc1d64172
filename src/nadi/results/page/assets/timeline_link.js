// The address of the page says what is shown: a link opens there.
"use strict";

const LATER = 250;  // ms after the last change

class TimelineLink {
  constructor(controls) {
    this.controls = controls;
    this.view = controls.view;
    this.timer = 0;
    this.#apply();
    this.first = this.text();
    this.view.changed = () => this.#changed();
    window.addEventListener("hashchange", () => {
      if (location.hash.includes("=")) this.#apply();
    });
  }

  /** Write what is shown: times are ns, tracks and events their numbers on this page. */
  text() {
    const { view, controls } = this;
    const area = (one) => one && [one.from, one.to, ...one.tracks].join(",");
    const known = {
      t: [view.from, view.to].map(Math.round).join(","),
      y: Math.round(view.scroller.scrollTop) || "",
      e: view.selected < 0 ? "" : view.selected,
      q: controls.field.value, f: document.getElementById("timeline-filter").value,
      a: area(view.areas.now) ?? "", b: area(view.areas.kept) ?? "", by: controls.area.way,
      pins: view.pins.join(","), hide: [...view.hidden].join(","),
      closed: [...view.closed].join(","),
      order: [...view.moved].map(([process, order]) => [process, ...order].join(",")).join(";"),
      path: view.pathOnly ? 1 : "", most: controls.isMost ? 1 : "",
    };
    if (known.by === "name") known.by = "";
    return Object.entries(known).filter(([, value]) => value !== "")
      .map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  }

  #changed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), LATER);
  }

  write() {
    const text = this.text();
    if (text === this.first && !location.hash.includes("=")) return;
    try {
      history.replaceState(null, "", `#${text}`);
    } catch { /* a browser that keeps the address of files as it is */ }
  }

  #apply() {
    if (!location.hash.includes("=")) return;
    const { view, controls } = this;
    const given = new URLSearchParams(location.hash.slice(1));
    const numbers = (key) => (given.get(key) ?? "").split(",").filter(Boolean).map(Number);
    const tracks = (list) => list.filter((one) => view.data.tracks[one]);
    const area = (key) => {
      const [from, to, ...rest] = numbers(key);
      return to > from ? { from, to, tracks: tracks(rest) } : null;
    };
    view.pins = tracks(numbers("pins"));
    view.hidden = new Set(tracks(numbers("hide")));
    view.closed = new Set(numbers("closed"));
    view.moved = new Map((given.get("order") ?? "").split(";").filter(Boolean).map((one) => {
      const [process, ...order] = one.split(",").map(Number);
      return [process, order];
    }).filter(([process, order]) => order.length ===
      view.data.tracks.filter((track) => track.process === process).length &&
      tracks(order).length === order.length));
    controls.pathOnly(given.has("path"));
    controls.filter(given.get("f") ?? "");
    controls.maximise(given.has("most"));
    controls.field.value = given.get("q") ?? "";
    controls.search(controls.field.value);
    const event = Number(given.get("e") ?? -1);
    controls.select(event < view.data.size ? event : -1, false);
    view.areas.kept = area("b");
    if (WAYS.includes(given.get("by"))) controls.area.way = given.get("by");
    controls.area.choose(area("a"));
    const [from, to] = numbers("t");
    if (to > from) view.show(from, to);
    view.scroller.scrollTop = Number(given.get("y") ?? view.scroller.scrollTop);
    document.getElementById("timeline").scrollIntoView();
  }
}
