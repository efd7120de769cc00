// The panels below the table of a task, and the sections about all tasks.
function heat(table) {
  const { encoders, strategies, cells } = table.heat, at = {};
  for (const [e, k, row, n] of cells) at[e + "," + k] = [row, n];
  const means = cells.map((c) => known(c[2]) && table.rows[c[2]].mean).filter((m) => known(m) && m !== false);
  const low = Math.min(...means), high = Math.max(...means);
  const share = (m) => { const t = high > low ? (m - low) / (high - low) : 1; return 6 + 88 * (table.maximize ? t : 1 - t); };
  const cell = (e, k) => {
    const entry = at[e + "," + k];
    if (!entry) return h("td", { class: "none" }, h("span", { "aria-label": "not run" }, "–"));
    const row = known(entry[0]) ? table.rows[entry[0]] : null;
    if (!row || !known(row.mean)) return h("td", { class: "none" }, row ? row.state : "no dev score");
    const deep = share(row.mean);
    return h("td", { class: "num heated" + (deep > DEEP ? " deep" : ""), style: { "--h": deep + "%" }, ...tipped(row.name + "\n" + row.text + (row.ci ? "\n95 % CI " + interval(...row.ci) : "")) },
      score(row.mean), entry[1] > 1 ? h("small", {}, "best of " + entry[1] + " on dev") : row.tied && h("small", {}, row.first ? "best" : "tied"));
  };
  return h("div", { class: "scroll" }, h("table", { class: "heat" },
    h("thead", {}, h("tr", {}, h("th"), strategies.map((k) => h("th", { scope: "col", title: k }, soft(k))))),
    h("tbody", {}, encoders.map((name, e) => h("tr", {}, h("th", { scope: "row", title: name }, name), strategies.map((_, k) => cell(e, k)))))));
}

function mixes(table) {
  const widest = Math.max(...table.mixes.map((m) => m.layers.length));
  const top = Math.max(...table.mixes.flatMap((m) => m.mean));
  return h("div", { class: "scroll" }, h("table", { class: "heat mix" },
    h("thead", {}, h("tr", {}, h("th", {}), [...Array(widest).keys()].map((k) => h("th", { scope: "col" }, k ? "layer " + k : "embeddings")), h("th", { scope: "col" }, "γ"))),
    h("tbody", {}, table.mixes.map((m) => {
      const row = table.rows[m.row], place = (k) => m.layers.indexOf(k);
      return h("tr", {}, h("th", { scope: "row", title: row.name }, row.short + (m.where ? ", " + m.where : "")),
        [...Array(widest).keys()].map((k) => {
          const j = place(k);
          if (j < 0) return h("td", { class: "none" }, "–");
          const deep = 6 + (88 * m.mean[j]) / top, seeds = m.seeds.map((w) => w[j].toFixed(3)).join(", ");
          return h("td", { class: "num heated" + (deep > DEEP ? " deep" : ""), style: { "--h": deep + "%" }, ...tipped("weight per seed: " + seeds) }, m.mean[j].toFixed(3));
        }), h("td", { class: "num none" }, m.gamma.length ? (m.gamma.reduce((a, b) => a + b) / m.gamma.length).toFixed(2) : ""));
    }))));
}

function slices(table) {
  const { rows, slices: all } = table.slices;
  const means = all.flatMap((t) => Object.values(t.cells).map((c) => c[0]));
  const low = Math.min(...means), high = Math.max(...means);
  const share = (m) => { const t = high > low ? (m - low) / (high - low) : 1; return 6 + 88 * (table.maximize ? t : 1 - t); };
  return h("div", { class: "scroll" }, h("table", { class: "heat" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "slice"), h("th", { scope: "col" }, "examples"), rows.map((i) => h("th", { scope: "col", title: table.rows[i].name }, soft(table.rows[i].short))))),
    h("tbody", {}, all.map((t) => h("tr", {}, h("th", { scope: "row", title: t.slice }, t.slice), h("td", { class: "num" }, t.n), rows.map((i) => {
      const c = t.cells[i];
      if (!c) return h("td", { class: "none" }, "–");
      return h("td", { class: "num heated" + (share(c[0]) > DEEP ? " deep" : ""), style: { "--h": share(c[0]) + "%" } }, score(c[0]), h("small", {}, score(c[1]) + "–" + score(c[2])));
    }))))));
}

function holm(ps) {
  const out = Array(ps.length).fill(0), order = ps.map((_, i) => i).sort((a, b) => ps[a] - ps[b]);
  let highest = 0;
  order.forEach((i, rank) => { highest = Math.max(highest, Math.min(1, (ps.length - rank) * ps[i])); out[i] = highest; });
  return out;
}
function compared(table, selected) {
  if (!table.pairs) return h("p", { class: "soft" }, "No two rows of this table can be tested on the same examples.");
  const tests = table.pairs.tests.filter(([a, b]) => selected.includes(a) && selected.includes(b)).map(([a, b, eff, low, high, p]) => ({ a, b, effect: eff, low, high, p }));
  if (!tests.length) return h("p", { class: "soft" }, "Select two or more rows in the table to test them pairwise on the same " + count(table.pairs.examples, "example") + ".");
  const adjusted = holm(tests.map((d) => d.p)), to = scale([0, ...tests.flatMap((d) => [d.low, d.high])], [6, 194], { pad: 0.02 });
  const better = (d) => (d.effect > 0) === table.maximize;
  return [h("div", { class: "scroll" }, h("table", { class: "pairs" },
    h("thead", {}, h("tr", {}, ["better", "than", "difference", "95 % CI", "", "p", "p (Holm)"].map((t, k) => h("th", { scope: "col", class: [2, 3, 5, 6].includes(k) ? "r" + (k === 5 || k === 3 ? " hide" : "") : k === 4 ? "hide" : "" }, t)))),
    h("tbody", {}, tests.map((d, k) => h("tr", {}, h("td", { class: "name" }, soft(table.rows[better(d) ? d.a : d.b].short)), h("td", { class: "name" }, soft(table.rows[better(d) ? d.b : d.a].short)),
      h("td", { class: "r num" }, score(Math.abs(d.effect))), h("td", { class: "r num hide" }, better(d) === (d.effect > 0) ? signed(d.low) + " to " + signed(d.high) : signed(-d.high) + " to " + signed(-d.low)),
      h("td", { class: "hide" }, effect(better(d) === (d.effect > 0) ? d : { effect: -d.effect, low: -d.high, high: -d.low }, to)),
      h("td", { class: "r num hide" }, pvalue(d.p)), h("td", { class: "r num" }, h("strong", {}, pvalue(adjusted[k])), adjusted[k] >= 0.05 && h("span", { class: "soft opt" }, " not significant")))))))
    , h("p", { class: "soft small" }, "Paired tests on " + count(table.pairs.examples, "example") + "; seeds: " + table.pairs.seeds + ". Holm's correction is over the " + count(tests.length, "pair") + " shown.")];
}

function disagreements(table, view) {
  const d = table.disagreements, names = d.rows.map((i) => [i, table.rows[i].short]);
  const box = h("div");
  function paint() {
    const [a, b] = [view.a, view.b].map(Number), pair = d.pairs.find((p) => (p.a === a && p.b === b) || (p.a === b && p.b === a));
    if (!pair) return box.replaceChildren(h("p", { class: "soft" }, "Choose two different rows."));
    if (!pair.differ) return box.replaceChildren(h("p", { class: "soft" }, "Their predictions are the same for every example."));
    const [onlyA, onlyB] = pair.a === a ? [pair.a_right, pair.b_right] : [pair.b_right, pair.a_right];
    const word = d.numeric ? "closer" : "right";
    box.replaceChildren(
      h("p", {}, "Their predictions differ on " + count(pair.differ, "example") + ": on " + onlyA + " only the first is " + word + ", on " + onlyB + " only the second." + (pair.shown.length < pair.differ ? " " + pair.shown.length + " are shown." : "")),
      h("div", { class: "cards" + (Array.isArray(d.examples[pair.shown[0]]?.gold) ? "" : " short") }, pair.shown.map((k) => card(table, d, d.examples[k], a, b))));
  }
  if (!known(view.a)) {
    const first = d.pairs.find((p) => p.differ > 0) || d.pairs[0];
    [view.a, view.b] = [first.a, first.b];
  }
  paint();
  return [h("div", { class: "bar noprint" }, select("first", names, view.a, (v) => { view.a = v; paint(); }), select("second", names, view.b, (v) => { view.b = v; paint(); })), box];
}
function card(table, d, e, a, b) {
  const head = h("div", { class: "id" }, h("code", {}, e.id), e.tags.map((t) => h("span", { class: "pill" }, t)));
  const who = [["gold", e.gold, null], [table.rows[a].short, e.predictions[a], e.right[a]], [table.rows[b].short, e.predictions[b], e.right[b]]];
  if (Array.isArray(e.gold)) {
    // words for which all three say O are left out; the numbers are positions in the sentence
    const at = e.gold.map((_, k) => k).filter((k) => who.some(([, v]) => v[k] !== e.gold[k] || v[k] !== "O"));
    return h("div", { class: "card" }, head, h("div", { class: "scroll" }, h("table", { class: "tags" },
      h("tr", { class: "at" }, h("th", { scope: "row" }, "word"), at.map((k) => h("td", {}, e.gold[k] === "..." ? "" : k + 1))),
      who.map(([name, v, right]) => h("tr", {}, h("th", { scope: "row" }, name), at.map((k) => h("td", { class: (v[k] === "O" ? "o" : "") + (right === null || v[k] === e.gold[k] ? "" : " off") }, v[k] === "O" ? "·" : v[k])))))));
  }
  return h("div", { class: "card" }, head, h("dl", { class: "answers" }, who.map(([name, v, right]) => [h("dt", { title: name }, name),
    h("dd", { class: right ? "right" : "" }, v, right && !d.numeric ? " ✓" : "")])));
}

function list(lines) {
  return lines.length > 0 && h("ul", { class: "notes" }, lines.map((t) => h("li", { class: t.startsWith("warning") ? "warning" : "" }, t.replace(/^note: /, ""))));
}
function across() {
  const a = DATA.across;
  return h("section", { "aria-label": "over tasks" }, h("h3", {}, a.title), a.rows.length > 0 && h("div", { class: "scroll" }, h("table", { class: "across" },
    h("thead", {}, h("tr", {}, ["system", "average rank", "mean", "95 % CI", "interquartile mean", "tasks", "n"].map((t, k) => h("th", { scope: "col", class: k ? "r" + (k > 2 ? " hide" : "") : "" }, t)))),
    h("tbody", {}, a.rows.map((r) => h("tr", {}, h("td", { class: "name" }, soft(r.system)), h("td", { class: "r num" }, r.average_rank.toFixed(2)), h("td", { class: "r num" }, score(r.mean)),
      h("td", { class: "r num hide" }, known(r.ci_low) && interval(r.ci_low, r.ci_high)), h("td", { class: "r num hide" }, score(r.iqm)), h("td", { class: "r num hide" }, r.tasks), h("td", { class: "r num hide" }, r.n)))))), list(a.notes));
}
function papers() {
  if (!DATA.papers) return null;
  if (!DATA.papers.length) return h("section", {}, h("h3", {}, "Published figures"), h("p", { class: "soft" }, "None for these tasks."));
  return h("section", { id: "papers" }, h("h3", {}, "Published figures, beside ours"),
    h("p", { class: "soft small" }, "Copied from the cited works, not reproduced here: other code, often other splits and other tuning. They are not part of ranks, ties or tests."),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["task", "system", "as printed", "on our scale", "ours", "source"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, DATA.papers.map((f) => h("tr", {}, h("td", {}, f.task), h("td", {}, f.system), h("td", { class: "num" }, f.printed), h("td", { class: "num" }, score(f.on_our_scale) + " " + f.metric + ", " + f.split),
        h("td", {}, f.ours.length ? f.ours.map((t) => h("div", {}, t)) : h("span", { class: "soft" }, "–")), h("td", {}, h("a", { href: f.url, rel: "noreferrer noopener" }, f.source))))))));
}
function foot() {
  const cells = (title, lines, more, cls, n) => lines.length > 0 && h("details", { open: lines.length <= 12 }, h("summary", {}, title + " (" + (n || lines.length + more) + ")"),
    h("ul", { class: "cells" }, lines.map(([cell, why]) => h("li", {}, h("code", {}, cell), " ", h("span", { class: cls }, why))), more > 0 && h("li", {}, more + " more")));
  const budget = DATA.budget && h("section", { "aria-label": "within the budget" }, h("h3", {}, DATA.budget.title), h("ul", { class: "cells" }, DATA.budget.lines.map((t) => h("li", {}, t))));
  return [budget, DATA.across && across(), papers(), cells("Failed", DATA.failed, DATA.more[0], "bad"), cells("Skipped", DATA.skipped, DATA.more[1], "soft", DATA.cells.skipped),
    DATA.damaged.length > 0 && h("details", {}, h("summary", {}, "Damaged or copied records (" + DATA.damaged.length + ")"), h("ul", { class: "cells" }, DATA.damaged.map((t) => h("li", {}, t)))),
    list(DATA.notes),
    h("details", {}, h("summary", {}, "Provenance"), h("dl", { class: "prov" }, DATA.provenance.map(([k, v]) => [h("dt", {}, k), h("dd", {}, v)])))];
}
