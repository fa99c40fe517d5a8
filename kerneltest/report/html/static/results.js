// A list of results of any length: only the rows in sight are elements.

const ROW_HEIGHT = 28;

function caseTable(data, { title = "" } = {}) {
  const heads = [["verdict", "10.5rem"], ["pairing", "8rem"], ["backend", "9rem"], ["dtype", "5.5rem"], ["family", "11rem"], ["signature", "11rem"], ["bound used", "6rem"], ["message", "auto"]];
  const body = el("tbody");
  const table = el("table", {}, title ? el("caption", { class: "hidden" }, title) : null,
    el("thead", {}, el("tr", {}, heads.map(([name]) => el("th", { scope: "col" }, name)))), body);
  [...table.tHead.rows[0].cells].forEach((cell, i) => (cell.style.width = heads[i][1]));
  const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "List of results" }, table);
  const above = spacer(), below = spacer();
  let selected = [], first = -1;
  const draw = () => {
    const seen = Math.ceil((box.clientHeight || 600) / ROW_HEIGHT) + 20;
    const start = Math.max(0, Math.min(Math.floor(box.scrollTop / ROW_HEIGHT) - 10, selected.length - seen));
    if (start === first) return;
    first = start;
    const part = selected.slice(start, start + seen);
    above.firstChild.style.height = `${start * ROW_HEIGHT}px`;
    below.firstChild.style.height = `${Math.max(0, selected.length - start - part.length) * ROW_HEIGHT}px`;
    body.replaceChildren(above, ...part.map((row, i) => caseLine(data, row, start + i + 2)), below);
  };
  box.addEventListener("scroll", draw, { passive: true });
  addEventListener("resize", () => { first = -1; draw(); });
  return {
    box,
    show(rows) {
      selected = rows;
      first = -1;
      box.scrollTop = 0;
      table.setAttribute("aria-rowcount", String(rows.length + 1));
      draw();
    },
  };
}

const spacer = () => el("tr", { class: "space", "aria-hidden": "true" }, el("td", { colspan: "8" }));

function caseLine(data, row, position) {
  const rows = data.rows, verdict = data.verdicts[rows.verdict[row]], detail = data.detail.get(row);
  const target = data.targets[rows.target[row]], message = data.message(row).split("\n")[0];
  const label = [el("span", { class: "glyph" }, verdict.letter), " ", verdict.name];
  const used = rows.used[row];
  const cells = [
    data.short[rows.pairing[row]], data.backends[rows.backend[row]].id, data.dtypes[rows.dtype[row]],
    data.families[rows.family[row]].id + (target ? ` in ${target}` : ""), data.signatures[rows.signature[row]],
    used < 0 ? "" : number(used), message,
  ];
  return el("tr", { "aria-rowindex": String(position) },
    el("td", { class: `k-${verdict.kind}` }, detail ? el("a", { href: findingAddress(data, detail), class: `k-${verdict.kind} ink` }, label) : label),
    cells.map((text, i) => el("td", { title: text, class: i === 5 ? "number" : null }, text)));
}

const findingAddress = (data, finding, filters = {}) => address("finding", nameOf(data, finding), filters);
