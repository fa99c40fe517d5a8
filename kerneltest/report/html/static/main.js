// The address determines the view; every click changes the address.

async function start() {
  const data = index(await unpack(byId("data").textContent));
  byId("data").remove();
  document.documentElement.classList.add("js");
  const form = byId("filters"), shown = byId("shown"), title = document.title;
  const drawMatrix = bindMatrix(data, byId("matrix"));
  const showSuspect = bindSuspects(data), start = byId("view-suspects") ? "suspects" : "matrix";
  const list = caseTable(data, { title: "Results", sortBy: (sort) => {
    const { view, name, filters } = parse(location.hash);
    history.replaceState(null, "", address(view, name, { ...filters, sort }));
    draw();
  } });
  const lead = el("span", { class: "dim" });
  const save = el("button", { type: "button" }, "Export CSV");
  save.addEventListener("click", () => download("results.csv", toCsv(data, list.rows())));
  byId("view-results").append(el("div", { class: "tools" }, save, lead), list.box);
  const slowest = slowestOfAll(data);
  if (slowest) byId("slowest").append(el("h2", {}, "Slowest cases"), slowest);
  const sections = [...document.querySelectorAll("main > [data-view]")];
  const detailed = select(data, {}, { findings: true }).filter((row) => !GAPS.has(data.verdicts[data.rows.verdict[row]].name)).length;
  let last = "";

  function draw() {
    const { view: asked, name, filters } = parse(location.hash);
    const known = sections.some((section) => section.dataset.view.split(" ").includes(asked));
    const view = known ? asked : start, findings = view === "findings";
    showFilters(form, filters);
    form.hidden = !["matrix", "findings", "results", "pairing"].includes(view);
    for (const section of sections) section.hidden = !section.dataset.view.split(" ").includes(view);
    document.documentElement.dataset.view = view;
    for (const link of document.querySelectorAll("nav a")) {
      link.setAttribute("href", address(link.dataset.view, "", name ? widened(filters) : filters));
      if (link.dataset.view === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    let drawn = null;
    if (view === "matrix" || view === "results" || findings) {
      const selected = select(data, filters, { findings });
      shown.textContent = `${whole(selected.length)} of ${plural(data.count, "result")}`;
      if (view === "matrix") drawMatrix(filters, selected);
      else list.show(selected, filters.sort);
      lead.textContent = findings && data.findings.length < detailed ? `This page has the details of ${whole(data.findings.length)} of ${whole(detailed)} findings; the records have all.` : "";
    } else if (view === "pairing") {
      byId("view-pairing").replaceChildren(...[drawn = drawPairing(data, name, filters)].flat(Infinity).filter(Boolean));
      shown.textContent = `${whole(select(data, filters, { pairing: data.pairingNumber.get(name) ?? -2 }).length)} of ${plural(data.count, "result")}`;
    } else if (view === "finding") {
      byId("view-finding").replaceChildren(...[drawn = drawFinding(data, name, filters)].flat(Infinity).filter(Boolean));
    }
    const place = `${view}/${name}`;
    if (place !== last) {
      document.title = [drawn ? name : view, title].join(" · ");
      if (last) {
        scrollTo(0, 0);
        (drawn ? sections.find((section) => !section.hidden).querySelector("h2") : byId("main")).focus({ preventScroll: true });
      }
      last = place;
      if (view === "suspects" && name) showSuspect(name);
    }
  }

  bindFilters(data, form, (filters) => {
    const { view, name, filters: { sort } } = parse(location.hash);
    const to = address(view, name, { ...filters, sort });
    if (to !== location.hash) history.replaceState(null, "", to);
    draw();
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();  // the address must keep the view
    byId("main").focus();
  });
  addEventListener("hashchange", draw);
  draw();
  document.documentElement.dataset.ready = "true";
}

start();
