// Source with line numbers; `here` is the line to point at.

function drawSource(source, { here = 0, around = 0 } = {}) {
  const items = [];
  source.parts.forEach(([first, lines]) => {
    const from = around && here ? Math.max(0, here - first - around) : 0;
    const to = around && here ? Math.min(lines.length, here - first + around + 1) : lines.length;
    if (around && here && (here < first || here >= first + lines.length)) return;
    if (items.length) items.push(el("li", { class: "gap" }));
    for (let i = from; i < to; i++) {
      const marked = first + i === here;
      items.push(el("li", { "data-line": String(first + i), class: marked ? "here" : null, "aria-current": marked ? "true" : null },
        lines[i].map(([token, text]) => (token ? el("span", { class: token }, text) : text))));
    }
  });
  return el("div", { class: "source", tabindex: "0", role: "region", "aria-label": `Source in ${source.file}` }, el("ol", {}, items));
}

// The line of a pairing's sources that a message names as FILE:LINE, the first such if there are several.
function lineNamed(pairing, message) {
  for (const [, file, line] of message.matchAll(/([^\s()"',]+\.py):(\d+)/g)) {
    for (const source of [pairing.kernel, pairing.oracle]) {
      if (source && source.file === file && source.parts.some(([first, lines]) => +line >= first && +line < first + lines.length)) {
        return { source, line: +line, text: `${file}:${line}` };
      }
    }
  }
  return null;
}
