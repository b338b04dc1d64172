// Unpack the scripts, which are compressed as the data is; window.nadiTimeline tells when all is drawn.
"use strict";

window.nadiTimeline = (async () => {
  const coded = atob(document.getElementById("scripts").textContent);
  const bytes = Uint8Array.from(coded, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.body.append(script);
  return window.nadiTimeline;
})();
