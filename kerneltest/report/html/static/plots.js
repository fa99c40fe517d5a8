// Small SVG plots: strips of error / bound on a log axis, and histograms of distances in ULPs.

const STRIP = { left: 4, right: 6, width: 300, row: 15, low: -6, high: 1.5 };

// One strip a backend: a tick for each case, at the fraction of its bound that it used.
function strips(title, entries) {
  const { left, right, width, row, low, high } = STRIP;
  const names = Math.max(...entries.map(([name]) => name.length)) * 6.6 + 12;
  const height = entries.length * row + 18;
  const x = (used) => names + left + (Math.min(Math.max(Math.log10(used), low), high) - low) / (high - low) * (width - left - right);
  const words = entries.map(([name, values]) => `${name} at most ${number(Math.max(...values))} in ${plural(values.length, "case")}`);
  const ticks = (values, y) => [...new Set(values.map((used) => x(used > 0 ? used : 1e-9).toFixed(1)))].map((at) => `M${at} ${y}v9`).join("");
  return svg("svg", { class: "plot", width: names + width, height, role: "img", "aria-label": `${title}: error / bound, ${words.join("; ")}` },
    entries.map(([name, values], i) => {
      const y = i * row + 2, over = values.filter((used) => used > 1), within = values.filter((used) => used <= 1);
      return [
        svg("text", { class: "name", x: 0, y: y + 9 }, name),
        svg("path", { class: "axis", d: `M${names} ${y + 9.5}H${names + width - right}` }),
        within.length ? svg("path", { class: "marks", d: ticks(within, y) }) : null,
        over.length ? svg("path", { class: "over", d: ticks(over, y) }) : null,
      ];
    }),
    svg("path", { class: "limit", d: `M${x(1)} 0V${height - 14}` }),
    [-6, -4, -2, 0].map((power) => svg("text", { x: x(10 ** power), y: height - 3, "text-anchor": power === -6 ? "start" : "middle" },
      power === 0 ? "bound" : power === -6 ? "≤1e-6" : `1e${power}`)));
}

// Bars of counts, their height on a log scale so that single outliers are seen.
function ulpHistogram(title, counts) {
  const width = 15, top = 46, most = Math.log10(Math.max(...counts) + 1), buckets = Math.max(counts.length, 6);
  const name = (i) => (i === 0 ? "0" : i === 15 ? "≥2^14" : `<${2 ** i}`);
  const words = counts.map((n, i) => (n ? `${name(i)} ULP: ${whole(n)}` : "")).filter(Boolean).join(", ");
  return el("figure", {},
    svg("svg", { class: "plot", width: Math.max(buckets * width + 24, 120), height: top + 16, role: "img", "aria-label": `${title}: ${words}` },
      svg("path", { class: "axis", d: `M0 ${top + .5}H${buckets * width}` }),
      counts.map((n, i) => {
        const height = n ? Math.max(2, Math.log10(n + 1) / most * (top - 4)) : 0;
        return svg("rect", { class: "bar", x: i * width + 1, y: top - height, width: width - 3, height }, svg("title", {}, `${name(i)} ULP: ${whole(n)} elements`));
      }),
      [0, 5, 10].filter((i) => i < buckets).map((i) => svg("text", { x: i * width + width / 2, y: top + 13, "text-anchor": "middle" }, name(i)))),
    el("figcaption", {}, title));
}
