// The table of one task: sorting, filtering, seeds as dots on one scale, details of a row, rows to compare.
function domain(rows) {
  const all = rows.flatMap((r) => [...(r.ci || []), ...r.seeds.map((x) => x.test), r.mean]).filter(known);
  return all.length ? all : [0, 1];
}

const STRIP = 200;
function strip(row, to, best) {
  const seeds = row.seeds.filter((x) => known(x.test));
  const label = "mean " + score(row.mean) + (row.ci ? ", 95 % confidence interval " + interval(...row.ci) : "") +
    ", seeds " + seeds.map((x) => score(x.test)).join(", ");
  return s("svg", { width: STRIP, height: 20, viewBox: "0 0 " + STRIP + " 20", role: "img", "aria-label": label, class: "strip" },
    known(best) && s("line", { class: "ref", x1: to(best), x2: to(best), y1: 0, y2: 20 }),
    row.ci && s("line", { class: "ci", x1: to(row.ci[0]), x2: to(row.ci[1]), y1: 10, y2: 10 }),
    seeds.map((x) => s("circle", { class: "seed", cx: to(x.test), cy: 10, r: 3.6 }, s("title", {}, "seed " + x.seed + ": " + score(x.test)))),
    known(row.mean) && s("line", { class: "mean", x1: to(row.mean), x2: to(row.mean), y1: 4, y2: 16 }));
}
function stripAxis(to) {
  const marks = to.ticks(5);
  return s("svg", { width: STRIP, height: 14, viewBox: "0 0 " + STRIP + " 14", "aria-hidden": "true" },
    marks.map((t) => s("text", { x: to(t), y: 11, "text-anchor": "middle" }, String(Number(t.toPrecision(4))))));
}

const seedNote = (r) => [r.degenerate && count(r.degenerate, "degenerate seed"), r.failed_or_skipped && r.failed_or_skipped + " failed or skipped"].filter(Boolean).join(", ");
function columns(table, to, best) {
  const rows = table.rows, out = [];
  for (const label of table.labels) {
    const get = (r) => r.shown[label] || "", whole = label !== "variant" && rows.every((r) => get(r).length < 24);
    out.push({ key: label, text: label, cls: label === "variant" ? "variant opt" : "name opt" + (whole ? " whole" : ""), get, show: (r) => (whole ? get(r) : soft(get(r))) });
  }
  out.push({ key: "name", text: "model", cls: "merged name", get: (r) => r.name, show: (r) => [soft(r.short), known(r.mean) && strip(r, to, best)] });
  out.push({ key: "mean", text: table.metric, cls: "r num score", down: table.maximize, get: (r) => r.mean, show: (r) => [scoreText(r), " ", phoneMark(r)] });
  out.push({ key: "strip", text: "seeds, mean, 95 % CI", cls: "opt", head: stripAxis(to), show: (r) => known(r.mean) && strip(r, to, best) });
  const more = [
    ["ci", "95 % CI", "r num wide shed5 ci", (r) => (r.ci ? r.ci[0] : null), (r) => r.ci && interval(...r.ci) + (r.ci_kind === "examples only" ? "*" : r.ci_kind === "seeds and examples" ? "" : "+")],
    ["tied", "best", "opt", (r) => (known(r.tied) ? Number(r.tied) : null), mark],
    ["error_reduction", "rel. error reduction", "r num opt", (r) => r.error_reduction, (r) => known(r.error_reduction) && (100 * r.error_reduction).toFixed(1) + " %"],
    ["p", "p", "r num opt", (r) => r.p, (r) => known(r.p) && pvalue(r.p)],
    ["n", "n", "r num opt", (r) => r.n, (r) => String(r.n)],
    ["dev", "dev", "r num wide shed4", (r) => r.dev, (r) => score(r.dev)],
    ["tried", "tried", "r num wide shed3", (r) => r.tried, (r) => known(r.tried) && String(r.tried)],
    ["train", "training (s)", "r num wide shed2", (r) => r.costs.train_seconds, (r) => short(r.costs.train_seconds)],
    ["trained", "trained parameters", "r num wide shed1", (r) => r.costs.trained_parameters, (r) => short(r.costs.trained_parameters)],
    ["note", "note", "note opt", (r) => r.failed_or_skipped + r.degenerate, (r) => known(r.mean) && seedNote(r)],
  ];
  for (const [key, text, cls, get, show] of more) out.push({ key, text, cls, get, show });
  const text = (x) => [x].flat(3).some((y) => y && y !== "");
  return out.filter((c) => ["mean", "n", "name", "strip"].includes(c.key) || rows.some((r) => text(c.show(r))));
}
// columns that are also in a row's details are hidden one by one until the table fits
const SHED = 5;
function fitBoards() {
  for (const table of document.querySelectorAll("table.board")) {
    const room = table.parentElement;
    for (let k = 0; k <= SHED; k++) {
      table.dataset.shed = Array.from({ length: k }, (_, i) => i + 1).join(" ");
      if (room.scrollWidth <= room.clientWidth) break;
    }
  }
}
function scoreText(r) {
  const [mean, std] = r.text.split(" ± ");
  return [mean, std && h("span", { class: "opt" }, " ± " + std)];
}
function mark(r) {
  if (r.first) return h("span", { class: "pill best" }, "best");
  return r.tied && h("span", { class: "pill tied", title: "not significantly different from the best row" }, "tied");
}
function phoneMark(r) {
  const made = mark(r);
  return made && h("span", { class: "merged-mark" }, made);
}

function board(table, view, redraw) {
  const scored = table.rows.filter((r) => known(r.mean));
  const to = scale(domain(scored), [8, STRIP - 8], { pad: 0.02 });
  const best = scored.length ? scored[0].mean : null;
  const cols = columns(table, to, best);
  const comparable = new Set(table.pairs ? table.pairs.rows : []);
  const body = h("tbody");
  const shownRows = h("span", { class: "soft small", role: "status", "aria-live": "polite" });
  const lines = table.rows.map((row, i) => line(table, row, i, cols, comparable, view, redraw));
  const order = () => {
    const col = cols.find((c) => c.key === view.sort);
    if (!col || !col.get) return table.rows.map((_, i) => i);
    const turn = view.down ? -1 : 1, at = table.rows.map((_, i) => i);
    const value = (i) => col.get(table.rows[i]);
    return at.sort((a, b) => {
      const x = value(a), y = value(b);
      if (!known(x) || !known(y)) return known(x) - known(y) ? (known(x) ? -1 : 1) : a - b;
      return (typeof x === "string" ? x.localeCompare(y) : x - y) * turn || a - b;
    });
  };
  const heads = cols.map((c) => {
    const sortBy = () => {
      view.down = view.sort === c.key ? !view.down : Boolean(c.down);
      view.sort = c.key;
      paint();
    };
    const inner = c.get ? h("button", { type: "button", onclick: sortBy, "data-sort": c.key }, c.text) : c.text;
    return h("th", { scope: "col", class: c.cls.replace("score", "") }, inner, c.head);
  });
  function paint() {
    const words = view.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = order().filter((i) => {
      const r = table.rows[i];
      const text = (r.name + " " + r.state + " " + r.cell + " " + (r.tied ? "tied" : "")).toLowerCase();
      return words.every((w) => text.includes(w)) && (!view.tied || r.tied);
    });
    body.replaceChildren(...shown.flatMap((i) => lines[i].nodes()));
    shownRows.textContent = shown.length === table.rows.length ? count(shown.length, "row") : shown.length + " of " + count(table.rows.length, "row");
    heads.forEach((th, k) => {
      if (cols[k].key === view.sort) th.setAttribute("aria-sort", view.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
  }
  const search = h("input", { type: "search", placeholder: "Filter rows, such as bert full", "aria-label": "Filter rows", value: view.filter,
    oninput: () => { view.filter = search.value; paint(); } });
  const onlyTied = h("input", { type: "checkbox", checked: view.tied, onchange: () => { view.tied = onlyTied.checked; paint(); } });
  paint();
  return [
    h("div", { class: "bar noprint" }, search,
      table.rows.some((r) => r.tied) && h("label", { class: "check" }, onlyTied, "best and tied only"), shownRows),
    h("div", { class: "scroll" }, h("table", { class: "board" },
      h("caption", { class: "soft small", style: { "text-align": "left", "padding-bottom": "6px" } },
        "Dots: seeds. Vertical line: their mean. Horizontal bar: its 95 % confidence interval. Dotted line: the best mean."),
      h("thead", {}, h("tr", {}, h("th", { class: "tools", scope: "col", "aria-label": "compare and details" }), heads)), body)),
  ];
}

function line(table, row, i, cols, comparable, view, redraw) {
  let open = false;
  const made = {};
  made.nodes = () => {
    if (!made.tr) made.tr = build();
    return open ? [made.tr, made.detail || (made.detail = detail(table, row, cols.length + 1))] : [made.tr];
  };
  function build() {
    const more = h("button", { type: "button", "aria-expanded": "false", "aria-label": "details of " + row.name, onclick: () => {
      open = !open;
      more.setAttribute("aria-expanded", String(open));
      more.textContent = open ? "−" : "+";
      if (open) made.tr.after(made.nodes()[1]); else made.detail.remove();
    } }, "+");
    const box = comparable.has(i) && h("input", { type: "checkbox", checked: view.selected.includes(i), "aria-label": "compare " + row.name,
      title: "compare this row with others", "data-compare": i, onchange: (e) => {
        view.selected = e.target.checked ? [...view.selected, i].sort((a, b) => a - b) : view.selected.filter((k) => k !== i);
        redraw();
      } });
    return h("tr", { class: "row" + (known(row.mean) ? "" : " unscored") + (row.first ? " top1" : "") },
      h("td", { class: "tools" }, h("span", {}, box || h("span", { class: "gap" }), more)),
      known(row.mean) ? cols.map((c) => h("td", { class: c.cls }, c.show(row))) : unscored());
  }
  // the reason takes the place of the scores
  function unscored() {
    const at = cols.findIndex((c) => c.key === "mean") + 1, why = [seedNote(row), row.notes[0] && cut(row.notes[0], 160)];
    return [cols.slice(0, at).map((c) => h("td", { class: c.cls }, c.show(row))),
      at < cols.length && h("td", { class: "note opt", colspan: cols.length - at }, why.filter(Boolean).join(": "))];
  }
  return made;
}

function detail(table, row, span) {
  const seeds = h("table", {}, h("thead", {}, h("tr", {}, ["seed", "test", "dev", "epoch", ""].map((t) => h("th", { class: t ? "r" : "" }, t)))),
    h("tbody", {}, row.seeds.map((x) => h("tr", {}, h("td", { class: "r num" }, x.seed), h("td", { class: "r num" }, score(x.test)),
      h("td", { class: "r num" }, score(x.dev)), h("td", { class: "r num" }, known(x.epoch) && x.epoch + "/" + x.epochs),
      h("td", { class: x.status === "complete" ? "soft" : "bad" }, x.status === "complete" ? x.degenerate : x.status)))));
  const costs = Object.entries(COST).filter(([key]) => known(row.costs[key])).map(([key, text]) => [
    h("dt", {}, text), h("dd", { class: "num" }, short(row.costs[key]), row.front.includes(key) && h("span", { class: "soft" }, "  on the Pareto front"))]);
  return h("tr", { class: "detail" }, h("td", { colspan: span }, h("p", {}, h("strong", {}, row.name)), h("div", { class: "facts" },
    h("div", {}, h("h4", {}, "Seeds"), seeds),
    known(row.mean) && h("div", {}, h("h4", {}, "Cost (mean over seeds), " + row.device), h("dl", {}, costs)),
    h("div", {}, h("h4", {}, "Cell"), h("dl", {}, h("dt", {}, "id"), h("dd", {}, h("code", {}, row.cell)),
      known(row.dev) && [h("dt", {}, "dev"), h("dd", { class: "num" }, score(row.dev))], known(row.tried) && [h("dt", {}, "tried"), h("dd", {}, row.tried)],
      row.ci && [h("dt", {}, "95 % CI"), h("dd", {}, interval(...row.ci) + ", over " + row.ci_kind)], row.no_interval && [h("dt", {}, "no interval"), h("dd", {}, row.no_interval)],
      seedNote(row) && [h("dt", {}, "seeds"), h("dd", {}, seedNote(row))], row.notes.length > 0 && [h("dt", {}, "note"), h("dd", {}, row.notes.join("; "))])))));
}
