// Unpack the scripts, which are compressed as the data is; window.nadiTimeline tells when all is drawn.
"use strict";

/** Decompress what `zipped` of nadi/results/page/figures.py made. */
async function unzipped(coded) {
  const letters = atob(coded);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

window.nadiTimeline = (async () => {
  const text = async (place) => new TextDecoder().decode(await unzipped(place.textContent));
  for (const lines of document.querySelectorAll("pre[data-kind]")) {
    lines.textContent = await text(lines);
  }
  for (const table of document.querySelectorAll("pre.opened")) table.outerHTML = await text(table);
  const script = document.createElement("script");
  script.textContent = await text(document.getElementById("scripts"));
  document.body.append(script);
  return window.nadiTimeline;
})();
