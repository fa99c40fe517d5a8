// Suspects: the static text becomes the head of each; its details are drawn when it is opened.

const AT_FIRST = 6;  // suspects that are open at first
const FEW = 16;  // elements that are drawn in full size

function bindSuspects(data) {
  const articles = [...document.querySelectorAll(".suspect")];
  const draw = (article) => {
    if (article.dataset.drawn) return;
    article.dataset.drawn = "true";
    article.firstElementChild.append(drawSuspect(data, data.suspects[article.dataset.suspect]));
  };
  for (const link of document.querySelectorAll("#view-suspects h2 a")) link.setAttribute("href", address("pairing", JSON.parse(link.dataset.pairing)));
  for (const link of document.querySelectorAll("#view-suspects .contents a")) link.setAttribute("href", address("suspects", data.suspects[link.dataset.suspect].id));
  articles.forEach((article, i) => {
    const box = article.firstElementChild;
    box.open = i < AT_FIRST;
    if (box.open) draw(article);
    box.addEventListener("toggle", () => box.open && draw(article));
  });
  return (id) => {
    const article = articles.find((each) => data.suspects[each.dataset.suspect].id === id);
    if (!article) return;
    article.firstElementChild.open = true;
    draw(article);
    article.scrollIntoView();
    article.querySelector("h3").focus({ preventScroll: true });
  };
}

// The suspects of a pairing, each with its cause and its condition.
function suspectsOf(data, pairing) {
  const mine = data.suspects.filter((each) => each.pairing === pairing);
  if (!mine.length) return null;
  const cause = ({ fault }) => (fault ? [el("p", {}, fault[3] ? "Root cause: " : "Possible root cause: ", el("code", {}, fault[0]), " ", fault[1] ? [el("code", {}, fault[1]), " "] : null, fault[2])] : null);
  return [
    el("h2", {}, plural(mine.length, "suspect")),
    el("ol", { class: "contents" }, mine.map((each) => el("li", { value: data.suspects.indexOf(each) + 1 },
      el("a", { href: address("suspects", each.id) }, each.title), " ", el("span", { class: "dim" }, plural(each.findings, "case")),
      cause(each), each.conditions.map((words) => el("p", { class: "dim" }, words))))),
  ];
}

function drawSuspect(data, suspect) {
  const pairing = data.pairings[suspect.pairing];
  return el("div", { class: "body" },
    el("div", { class: "shown" },
      el("section", {}, smallestOf(suspect),
        suspect.errors ? [el("h4", {}, "Error over the whole output"), drawErrorMap(data, suspect.errors)] : null),
      el("section", { class: "place" }, placeOf(suspect, pairing),
        suspect.conditions.length || suspect.strips.length ? [
          el("h4", {}, "Where it shows"),
          suspect.conditions.map((words) => el("p", {}, words)),
          el("div", { class: "strips" }, suspect.strips.map(strip))] : null),
      el("section", {}, againOf(suspect))),
    casesOf(data, suspect));
}

// The smallest case: output and inputs as pictures, or as text.
function smallestOf(suspect) {
  const [first, ...rest] = suspect.message.split("\n"), of = ` of suspect ${suspect.id}`;
  const given = (suspect.inputs || []).map((each) => drawInput(each, of)), few = (suspect.inputs || []).every((each) => each.values.length <= FEW);
  return [
    el("h4", {}, suspect.smallest ? "Smallest case" : "Example"),
    el("p", { class: "dim" }, [suspect.backend, suspect.signature, suspect.family].join(" · "), suspect.smallest ? [el("br"), howFound(suspect)] : null),
    suspect.picture ? el("div", { class: Math.max(...suspect.picture.extent) > FEW ? "split fine" : "split" },
      few ? given : null, drawPicture(suspect.picture), few ? null : given)
      : [el("p", { class: "lead" }, first), suspect.arguments.map(([path, text]) => el("pre", { tabindex: "0", role: "region", "aria-label": `Values of ${path}${of}` }, `${path} = ${text}`)),
        suspect.at ? el("p", {}, "got ", el("code", {}, numbers(...suspect.at.slice(1))[0]), ", expected ", el("code", {}, numbers(...suspect.at.slice(1))[1])) : null,
        rest.length ? el("p", { class: "message dim" }, rest.join("\n")) : null],
    suspect.diagnosis ? el("div", { class: "why" }, suspect.diagnosis) : null,
    suspect.budget.length ? [el("h4", {}, "Parts of its bound"), budgetBars(suspect.budget), suspect.unstable ? el("p", { class: "dim" }, worded(suspect.unstable)) : null] : null,
  ];
}

function howFound(suspect) {
  const [nontrivial, attempts, complete] = suspect.smallest;
  const values = suspect.arguments.length ? `${plural(nontrivial, "input element")} other than 0 and 1; ` : "";
  return `${values}${plural(attempts, "case")} tried${complete ? "" : " until the time limit"}`;
}

function againOf(suspect) {
  return [
    el("h4", {}, "Reproduce"), copyable(suspect.commands.join("\n"), `the commands of suspect ${suspect.id}`),
    suspect.reduced ? el("details", {}, el("summary", {}, "Only the failing operations"), el("p", {}, el("code", {}, suspect.reduced[0])), copyable(suspect.reduced[1], `the script of suspect ${suspect.id}`)) : null,
    suspect.python ? el("details", {}, el("summary", {}, "In Python"), copyable(suspect.python, `the Python lines of suspect ${suspect.id}`)) : null,
  ];
}

// The root cause that experiments show, or else the source lines of the findings.
function placeOf(suspect, pairing) {
  const [place, operation, words, confirmed, others] = suspect.fault || [suspect.lines[0] || ""];
  const found = sourceLine(pairing, place);
  const of = ` of suspect ${suspect.id}`;
  const source = found ? drawSource(found.source, { here: found.line, around: 7, of })
    : pairing.kernel && pairing.kernel.parts.length ? drawSource(pairing.kernel, { of }) : null;
  if (!place) return source ? [el("h4", {}, "Kernel"), el("p", { class: "dim" }, pairing.kernel.file), source] : null;
  return [
    el("h4", {}, suspect.fault ? (confirmed ? "Root cause: " : "Possible root cause: ") : "At ", el("code", {}, place)),
    operation ? el("p", { class: "root-cause" }, el("code", {}, operation), el("span", {}, words)) : null,
    source,
    others && others.length ? el("p", { class: "dim" }, `Or ${others.join(", ")}: a change there fixes it as well.`) : null,
    !suspect.fault && suspect.lines.length > 1 ? el("p", { class: "dim" }, `Also at ${suspect.lines.slice(1).join(", ")}`) : null,
  ];
}

// One feature: a bar for each of its values, whose height is the share of failing cases.
const BAR = { width: 18, height: 26, long: 56, thin: 9 }, MOST_ROWS = 10, MOST_NAMES = 6, LONG = 9;

function strip([name, values, more]) {
  const flat = values.some(([value]) => String(value).length > LONG);
  const failing = values.filter(([, bad]) => bad), right = values.filter(([, bad]) => !bad).map(([value]) => String(value));
  const words = ([value, bad, all]) => `${name} ${value}: ${whole(bad)} of ${plural(all, "case")} ${bad === 1 ? "fails" : "fail"}`;
  const share = ([, bad, all]) => {
    const [width, height] = flat ? [BAR.long, BAR.thin] : [BAR.width, BAR.height];
    const part = bad ? Math.max(2, Math.round((flat ? width : height) * Math.min(1, bad / all))) : 0;
    const filled = flat ? { x: 0, y: 0, width: part, height } : { x: 0, y: height - part, width, height: part };
    return bar(width, height, part && { class: "filled", ...filled });
  };
  const item = (each) => el("li", { title: words(each), class: each[1] ? "bad" : null }, share(each),
    el("span", { "aria-hidden": "true" }, String(each[0])), flat ? el("span", { class: "number", "aria-hidden": "true" }, `${whole(each[1])}/${whole(each[2])}`) : null,
    el("span", { class: "hidden" }, words(each)));
  const shown = flat ? failing.slice(0, MOST_ROWS) : values;
  if (flat && !more && values.every(([, bad, all]) => bad === all)) return el("figure", {}, el("figcaption", {}, name), el("p", { class: "dim" }, `all cases fail, with all ${values.length} values`));
  const left = more + failing.length - (flat ? shown.length : failing.length);
  return el("figure", {}, el("figcaption", {}, name),
    el("ul", { class: flat ? "bars flat" : "bars" }, shown.map(item)),
    left ? el("p", { class: "dim" }, `and ${whole(left)} more`) : null,
    flat && right.length ? el("p", { class: "dim", title: right.join(", ") }, `not with ${right.slice(0, MOST_NAMES).join(", ")}${right.length > MOST_NAMES ? ` and ${right.length - MOST_NAMES} more` : ""}`) : null);
}

function casesOf(data, suspect) {
  const lines = suspect.cases.map(([, , count, row]) => kindLine(data, row, {}, [], count));
  return el("details", {},
    el("summary", {}, plural(suspect.findings, "case")),
    scrolled(`Cases of suspect ${suspect.id}`, ["verdict", "backend", "family", "cases", "first message"], lines),
    el("p", {}, el("a", { href: address("findings", "", { suspect: suspect.id }) }, `List all ${whole(suspect.findings)}`), " · ",
      el("a", { href: address("suspects", suspect.id) }, "link to suspect ", el("code", {}, suspect.id))));
}
