// The page shows one task at a time, and all of them when printed.
const main = document.getElementById("main");
const tables = DATA.tables;
const views = tables.map((t) => ({ sort: "", down: false, filter: "", tied: false, selected: [], cost: "train_seconds", a: null, b: null }));
tables.forEach((t, k) => {
  const scored = t.rows.filter((r) => known(r.mean));
  if (scored.length && scored[0].tied) scored[0].first = true;
  else if (scored.length) scored[0].first = scored.length > 1;
  if (t.pairs) views[k].selected = t.selected.length ? t.selected.filter((i) => t.pairs.rows.includes(i)) : t.pairs.rows.slice(0, 3);
});
let current = 0;

function label(t) {
  const apart = Object.entries(t.part).map(([k, v]) => k + " " + v).join(", ");
  const twice = tables.some((o) => o !== t && o.task === t.task && o.partial === t.partial && !apart);
  return t.task + (twice ? " " + t.metric : "") + (apart ? " (" + apart + ")" : "") + (t.partial ? " · partial" : "");
}
function leadText(t) {
  const scored = t.rows.filter((r) => known(r.mean));
  if (!scored.length) return h("p", { class: "lead" }, "No row has a score.");
  const best = scored[0], tied = scored.filter((r) => r.tied && r !== best).length;
  return h("p", { class: "lead" }, h("strong", {}, best.short), " has the best mean, ", h("span", { class: "num" }, score(best.mean)),
    best.ci && h("span", { class: "num soft" }, " (" + interval(...best.ci) + ")"),
    tied > 0 ? ". " + count(tied, "other row") + (tied === 1 ? " is" : " are") + " not significantly different." : best.tied ? ", significantly better than every other row tested." : ".",
    known(best.tried) && best.tried > 1 ? " Selected on dev from " + best.tried + " variants." : "");
}
const COSTS_OF_A_DEVICE = ["encode_seconds", "train_seconds", "eval_seconds", "peak_memory_mb"];
function costs(t, view) {
  const box = h("div"), offered = Object.entries(COST).filter(([key]) => t.rows.some((r) => known(r.mean) && known(r.costs[key])));
  const paint = () => box.replaceChildren(...[scatter(t, view.cost, COSTS_OF_A_DEVICE.includes(view.cost))].flat().filter(Boolean));
  paint();
  return [h("div", { class: "bar noprint" }, select("cost", offered, view.cost, (v) => { view.cost = v; paint(); })), box];
}
function panel(title, about, ...inside) {
  return h("section", { "aria-label": title }, h("h3", {}, title), about && h("p", { class: "soft small" }, about), inside);
}
function task(k) {
  const t = tables[k], view = views[k], pairBox = h("div", { class: "compared" });
  const repaint = () => pairBox.replaceChildren(...[compared(t, view.selected)].flat());
  repaint();
  const sliced = t.slices && t.slices.rows.length, several = t.rows.filter((r) => known(r.mean)).length > 1;
  return h("div", { class: "task" },
    h("section", {}, h("h2", {}, t.task), h("p", { class: "soft" }, t.title.split(" | ").slice(1).join(" · "), t.partial && h("strong", { class: "bad" }, " PARTIAL: run with a limit on examples")),
      leadText(t), t.common && h("p", { class: "soft small" }, "In all rows: ", h("code", {}, t.common)), board(t, view, repaint), list(t.notes)),
    several && panel("Pairwise comparisons", null, pairBox),
    h("div", { class: "two" },
      t.heat && panel("Encoders and strategies", "Stronger colour is better. If there are several variants, the best on dev is shown." + (known(t.heat.size) ? " Trained on " + count(t.heat.size, "example") + "." : ""), heat(t)),
      several && panel("Score against cost", "Dashed: Pareto front within one kind of device" + (new Set(t.rows.map((r) => r.n_train).filter(known)).size > 1 ? " and one training-set size" : "") + " (no other row is as good for less).", costs(t, view)),
      t.curves.length > 0 && panel("Learning curves", "Means with 95 % confidence intervals. Each size is one random subset, the same for all seeds; the variance from sampling it is not in the intervals.", curves(t)),
      t.mixes.length > 0 && panel("Layer weights", "Weight of each layer in the learned scalar mix, mean over seeds.", mixes(t))),
    sliced && panel("Scores by slice", t.metric + " on the examples with each tag, for the best " + count(t.slices.rows.length, "row") + ", with 95 % confidence intervals.", slices(t)),
    t.disagreements && panel("Where two rows disagree", "Predictions of one seed per row. Predictions do not contain texts; examples are identified by id.", disagreements(t, view)),
    t.cards.length > 0 && panel("Data", null, t.cards.map((card) => h("div", {}, h("p", {}, "Read by " + count(card.cells, "cell") + ":"), h("ul", { class: "notes" }, card.lines.map((line) => h("li", {}, line)))))),
    t.run_notes.length > 0 && panel("Run notes", null, h("ul", { class: "notes" }, t.run_notes.map(([text, n]) => h("li", {}, text + " (" + count(n, "cell") + ")")))));
}

function show(k, move) {
  current = k;
  hideTip();
  main.replaceChildren(task(k));
  fitBoards();
  document.querySelectorAll("nav button").forEach((b, j) => b.setAttribute("aria-current", String(j === k)));
  if (move) try { history.replaceState(null, "", "#task=" + encodeURIComponent(label(tables[k]))); } catch (e) { /* a page without a URL */ }
}
function theme(name) {
  document.documentElement.dataset.theme = name;
  const button = document.getElementById("theme");
  if (button) button.textContent = name === "dark" ? "Light" : "Dark";
}
const system = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
try { chosenTheme = localStorage.getItem("harness-theme"); } catch (e) { /* no storage for files in some browsers */ }
theme(chosenTheme || (system.matches ? "dark" : "light"));
system.addEventListener("change", () => { if (!chosenTheme) theme(system.matches ? "dark" : "light"); });

const cellCounts = "cells: " + Object.entries(DATA.cells).map(([k, n]) => n + " " + k).join(", ");
document.getElementById("head").append(
  h("div", { class: "top" }, h("div", {}, h("h1", {}, "Leaderboard"), h("p", { class: "soft" }, h("code", {}, DATA.folder), " · " + cellCounts + " · written " + DATA.written)),
    h("button", { id: "theme", type: "button", class: "noprint", "aria-label": "switch between light and dark", onclick: () => {
      chosenTheme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem("harness-theme", chosenTheme); } catch (e) { /* as above */ }
      theme(chosenTheme);
    } })),
  tables.length > 0 && h("nav", { "aria-label": "tasks" }, tables.map((t, k) => h("button", { type: "button", onclick: () => show(k, true) }, label(t)))) || "");
theme(document.documentElement.dataset.theme);
document.getElementById("foot").append(...foot().filter(Boolean));
const requested = decodeURIComponent((location.hash.match(/task=(.*)/) || ["", ""])[1]);
const first = Math.max(0, tables.findIndex((t) => label(t) === requested));
if (tables.length) show(first, false); else main.append(h("p", {}, "No records to show."));
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width && tables.length) { width = innerWidth; show(current, false); } });
addEventListener("beforeprint", () => main.replaceChildren(...tables.map((_, k) => task(k))));
addEventListener("afterprint", () => show(current, false));
