// One finding: message, facts, picture, inputs, source line, and reproduction.

function drawFinding(data, name, filters) {
  const bare = data.byName.has(name) ? -1 : rowNames(data).indexOf(name);
  const finding = data.byName.get(name) || (bare < 0 ? null : { row: bare, place: "" });
  if (!finding) return absent(`This report has no finding ${name}.`);
  const rows = data.rows, row = finding.row, verdict = data.verdicts[rows.verdict[row]];
  const pairing = data.pairings[rows.pairing[row]], backend = data.backends[rows.backend[row]].id;
  const target = data.targets[rows.target[row]], message = data.message(row);
  const family = data.families[rows.family[row]].id + (target ? ` in ${target}` : "");
  const line = sourceLine(pairing, finding.place);
  const [next, previous] = neighbours(data, row, filters);
  const step = (other, text) => (other ? el("a", { href: findingAddress(data, other, filters) }, text) : null);
  return [
    el("p", { class: "crumbs" }, el("a", { href: address("matrix", "", widened(filters)) }, "Matrix"), " › ", el("a", { href: address("pairing", pairing.id, filters) }, pairing.id), " › ", backend),
    el("div", { class: "head" }, el("h2", { tabindex: "-1" }, tag(verdict), ` ${data.short[rows.pairing[row]]} on ${backend}, ${data.dtypes[rows.dtype[row]]}`), el("span", { class: "grow" }), step(previous, "‹ previous"), step(next, "next ›")),
    el("p", { class: "lead" }, withoutDiagnosis(message, finding)),
    finding.diagnosis ? el("div", { class: "why" }, el("b", {}, "Diagnosis: "), finding.diagnosis) : null,
    finding.suspect ? el("div", { class: "why" }, el("b", {}, "Probable culprit: "), finding.suspect) : null,
    el("div", { class: "split" },
      finding.picture ? drawPicture(finding.picture) : null,
      el("div", { class: "facts-of" }, pairs(factsOf(data, finding, verdict, family)), el("h3", {}, "The same case on other backends"), others(data, row, filters))),
    finding.errors ? [el("h2", {}, "Error over the whole output"), drawErrorMap(data, finding.errors)] : null,
    finding.inputs && finding.inputs.length ? [el("h2", {}, "Inputs around the worst element"), el("div", { class: "split" }, finding.inputs.map((each) => drawInput(each)))] : argumentsOf(finding),
    line ? [el("h2", {}, "Source ", el("span", { class: "dim" }, line.text)), drawSource(line.source, { here: line.line, around: 6 })]
      : pairing.kernel && pairing.kernel.parts.length ? [el("h2", {}, "Kernel ", el("span", { class: "dim" }, pairing.kernel.file)), drawSource(pairing.kernel)] : null,
    reproduction(data, finding),
    finding.stderr ? [el("h2", {}, "Standard error"), copyable(finding.stderr, "standard error")] : null,
    finding.run === undefined ? null : [el("h2", {}, "Environment ", el("span", { class: "dim" }, `of run ${data.runs[finding.run].name}`)),
      pairs(Object.entries(data.runs[finding.run].environment))],
  ];
}

// The message without the line of the diagnosis, which is shown separately.
const withoutDiagnosis = (message, finding) => message.split("\n").filter((line) => line !== finding.diagnosis).join("\n");

function factsOf(data, finding, verdict, family) {
  const row = finding.row, at = finding.at, facts = [["meaning", verdict.meaning], ["family", family], ["signature", el("code", {}, data.signatures[data.rows.signature[row]])]];
  if (finding.tolerance) facts.push(["error model", finding.tolerance]);
  if (at) {
    facts.push(["where", `output ${at.output}, element [${at.index.join(", ")}]${finding.block ? `, block ${finding.block}` : ""}`]);
    const [got, expected] = numbers(at.actual, at.expected);
    facts.push(["counterexample", el("span", {}, "got ", el("code", {}, got), ", expected ", el("code", {}, expected), " ± ", el("code", {}, number(at.bound)))]);
    if (at.blocks[1] > 1) facts.push(["blocks", `${at.blocks[0]} of ${at.blocks[1]} have a wrong element`]);
  }
  const suspect = data.suspects[data.rows.suspect[row]];
  if (suspect) facts.push(["suspect", el("a", { href: address("suspects", suspect.id) }, suspect.title)]);
  if (finding.pattern) facts.push(["pattern", finding.pattern]);
  if (data.rows.used[row] >= 0) facts.push(["error / bound", number(data.rows.used[row])]);
  if (finding.budget) facts.push(["parts of the bound", [budgetBars(finding.budget), finding.unstable ? el("p", {}, worded(finding.unstable)) : null]]);
  if (finding.file) facts.push(["inputs saved", el("code", {}, finding.file)]);
  if (at && !finding.picture) facts.push(["picture", "left out of this page or of the record; another finding of the same kind has one"]);
  return facts;
}

function others(data, row, filters) {
  const rows = data.rows, same = [];
  for (let other = 0; other < data.count; other++) {
    if (["pairing", "dtype", "family", "signature", "target"].every((column) => rows[column][other] === rows[column][row]) && other !== row) same.push(other);
  }
  if (!same.length) return el("p", { class: "dim" }, "It did not run on any other backend.");
  return el("ul", { class: "tags" }, same.map((other) => {
    const detail = data.detail.get(other), verdict = data.verdicts[rows.verdict[other]];
    return el("li", {}, tag(verdict, detail ? findingAddress(data, detail, filters) : rowAddress(data, other), ` · ${data.backends[rows.backend[other]].id}`));
  }));
}

function argumentsOf(finding) {
  const given = Object.entries(finding.arguments || {});
  return given.length ? [el("h2", {}, "Inputs"), given.map(([path, text]) => el("div", { class: "block" }, el("pre", { tabindex: "0", role: "region", "aria-label": `Values of ${path}` }, `${path} = ${text}`)))] : null;
}

function reproduction(data, finding) {
  if (!finding.commands) return data.isFinding[data.rows.verdict[finding.row]] && !GAPS.has(data.verdicts[data.rows.verdict[finding.row]].name) ? el("p", { class: "dim" }, "The details of this finding are in the records only; this page has those of others of its kind.") : null;
  return [
    el("h2", {}, "Reproduce"),
    copyable(finding.commands.join("\n"), "the commands"),
    finding.code ? [el("h3", {}, "Script ", el("code", {}, finding.script), " (next to the saved inputs)"), copyable(finding.code, "the script")]
      : finding.script ? el("p", {}, "The run's folder has a script: ", el("code", {}, finding.script)) : null,
    finding.python ? [el("h3", {}, "In Python"), copyable(finding.python, "the Python lines")] : null,
  ];
}

function neighbours(data, row, filters) {
  const details = select(data, filters, { findings: true }).filter((each) => data.detail.has(each));
  const at = details.indexOf(row), of = (i) => (at >= 0 && details[i] !== undefined ? data.detail.get(details[i]) : null);
  return [of(at + 1), of(at - 1)];
}
