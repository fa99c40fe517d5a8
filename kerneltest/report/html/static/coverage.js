// What cases cover: lengths by dim, special values by argument; and which of them took longest.

function coverageOf(data, pairing) {
  const names = data.specials.map((name) => name.replace(/^(a|an) /, ""));
  const used = names.map((_, i) => pairing.specials.some(([, counts]) => counts[i]));
  const field = (counts, name) => {
    if (!counts) return el("td", {}, el("span", { class: "hidden" }, "does not exist"));
    const [some, row, all] = counts;
    return some ? el("td", { class: "number", title: `${plural(some, "case")}; a whole row in ${whole(row)}, all elements in ${whole(all)}` }, whole(some))
      : el("td", { class: "number dim", title: `no case has ${name}` }, "–");
  };
  return [
    pairing.lengths.length ? titled("Lengths", "The cases of each length, on all backends; the filled part of a bar is the share that fails.",
      el("div", { class: "strips" }, pairing.lengths.map(strip))) : null,
    pairing.specials.length ? titled("Special values", "The cases in which some element of an argument is such a value. A dash marks a value that no case has.",
      scrolled("Special values", ["argument", ...names.filter((_, i) => used[i])], pairing.specials.map(([path, counts]) =>
        el("tr", {}, el("th", { scope: "row" }, path), counts.map((each, i) => (used[i] ? field(each, names[i]) : null)))))) : null,
  ];
}

function slowestOf(data, entries, label) {
  if (!entries.length) return null;
  const rows = data.rows;
  return scrolled(label, ["seconds", "pairing", "backend", "dtype", "family", "signature", "verdict"], entries.map(([row, seconds]) => el("tr", {},
    el("td", { class: "number" }, number(seconds)),
    [data.short[rows.pairing[row]], data.backends[rows.backend[row]].id, data.dtypes[rows.dtype[row]], data.families[rows.family[row]].id, data.signatures[rows.signature[row]]].map((text) => el("td", {}, text)),
    el("td", { class: `k-${data.verdicts[rows.verdict[row]].kind} line` }, tagText(data.verdicts[rows.verdict[row]], rowAddress(data, row))))));
}

function slowestOfAll(data) {
  const all = data.pairings.flatMap((pairing) => pairing.slowest).sort((a, b) => b[1] - a[1]);
  return slowestOf(data, all.slice(0, 10), "Slowest cases");
}
