// Score against cost, learning curves, differences with their confidence intervals.
const SHAPES = [
  (x, y, r) => "M" + (x - r) + " " + y + "a" + r + " " + r + " 0 1 0 " + 2 * r + " 0a" + r + " " + r + " 0 1 0 " + -2 * r + " 0",
  (x, y, r) => "M" + (x - r) + " " + (y - r) + "h" + 2 * r + "v" + 2 * r + "h" + -2 * r + "z",
  (x, y, r) => "M" + x + " " + (y - r * 1.2) + "l" + r * 1.15 + " " + r * 2.1 + "h" + -r * 2.3 + "z",
  (x, y, r) => "M" + x + " " + (y - r * 1.3) + "l" + r * 1.3 + " " + r * 1.3 + "l" + -r * 1.3 + " " + r * 1.3 + "l" + -r * 1.3 + " " + -r * 1.3 + "z",
];
const H = 340, BOX = { left: 54, top: 26, bottom: H - 44 };
let W = 560;
function fit() {
  W = Math.max(280, Math.min(560, document.getElementById("main").clientWidth - 28));
  BOX.right = W - 14;
}

function frame(x, y, xLabel, yLabel, number, label) {
  const out = [];
  for (const t of y.ticks(6)) {
    out.push(s("line", { class: "grid", x1: BOX.left, x2: BOX.right, y1: y(t), y2: y(t) }));
    out.push(s("text", { x: BOX.left - 8, y: y(t) + 4, "text-anchor": "end" }, String(Number(t.toPrecision(4)))));
  }
  for (const t of x.ticks(6)) {
    out.push(s("line", { class: "axis", x1: x(t), x2: x(t), y1: BOX.bottom, y2: BOX.bottom + 4 }));
    out.push(s("text", { x: x(t), y: BOX.bottom + 17, "text-anchor": "middle" }, number(t)));
  }
  out.push(s("line", { class: "axis", x1: BOX.left, x2: BOX.right, y1: BOX.bottom, y2: BOX.bottom }));
  out.push(s("text", { x: (BOX.left + BOX.right) / 2, y: H - 8, "text-anchor": "middle", class: "label" }, xLabel));
  out.push(s("text", { x: 0, y: 10, class: "label" }, yLabel));
  return s("svg", { viewBox: "0 0 " + W + " " + H, width: W, height: H, role: "img", "aria-label": label }, out);
}

function scatter(table, cost, small) {
  fit();
  const rows = table.rows.map((r, i) => ({ r, i, x: r.costs[cost] })).filter((p) => known(p.r.mean) && known(p.x));
  if (rows.length < 2) return h("p", { class: "soft" }, "Fewer than two rows have a value for this cost.");
  const values = rows.map((p) => p.x), log = Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 20;
  const x = scale(values, [BOX.left + 6, BOX.right - 6], { log, pad: 0.05 });
  const y = scale(rows.map((p) => p.r.mean), [BOX.bottom, BOX.top], { pad: 0.07 });
  const kinds = small ? [...new Set(rows.map((p) => p.r.device))] : ["any device"];
  const kind = (p) => (small ? kinds.indexOf(p.r.device) : 0);
  const svg = frame(x, y, COST[cost] + (log ? " (logarithmic)" : ""), table.metric, short, table.metric + " against " + COST[cost] + ", " + rows.length + " rows; the table has the same values");
  const sizes = [...new Set(rows.map((p) => p.r.n_train))];
  for (const [k, size] of kinds.flatMap((_, k) => sizes.map((n) => [k, n]))) {
    const on = rows.filter((p) => kind(p) === k && p.r.n_train === size && p.r.front.includes(cost)).sort((a, b) => a.x - b.x);
    if (on.length > 1) {
      const path = on.map((p, j) => (j ? "H" + x(p.x) + "V" + y(p.r.mean) : "M" + x(p.x) + " " + y(p.r.mean))).join("");
      svg.append(s("path", { class: "front", d: path, stroke: "var(--c" + (k % 8) + ")" }));
    }
  }
  const taken = [];
  for (const p of [...rows].sort((a, b) => a.r.front.includes(cost) - b.r.front.includes(cost))) {
    const front = p.r.front.includes(cost), label = p.r.name + "\n" + p.r.text + (p.r.ci ? "  (" + interval(...p.r.ci) + ")" : "") + "\n" + short(p.x) + " " + COST[cost] + (sizes.length > 1 ? ", trained on " + count(p.r.n_train, "example") : "") + (front ? "\non the Pareto front" : "");
    svg.append(s("path", { class: "point", d: SHAPES[kind(p) % 4](x(p.x), y(p.r.mean), front ? 5.5 : 4.2), fill: "var(--c" + (kind(p) % 8) + ")", "fill-opacity": front ? 1 : 0.45,
      tabindex: front ? 0 : null, role: front ? "img" : null, "aria-label": front ? label.replace(/\n/g, ", ") : null, ...tipped(label) }));
    if (front) taken.push({ x: x(p.x), y: y(p.r.mean), text: p.r.short });
  }
  labels(svg, taken, rows.map((p) => ({ x: x(p.x), y: y(p.r.mean) })));
  const legend = kinds.length > 1 && h("ul", { class: "legend" }, kinds.map((name, k) => h("li", {},
    s("svg", { width: 12, height: 12 }, s("path", { d: SHAPES[k % 4](6, 6, 4), fill: "var(--c" + (k % 8) + ")" })), name)));
  return [h("div", {}, svg), legend];
}

// names of the points on the front, unless they would overlap each other or another point
function labels(svg, points, all) {
  const boxes = [];
  for (const p of points.sort((a, b) => a.y - b.y)) {
    const text = cut(p.text, 34), wide = text.length * 6.8;
    for (const [dx, dy, anchor] of [[-8, -7, "end"], [8, -7, "start"], [-9, 4, "end"], [9, 16, "start"], [9, 4, "start"]]) {
      const left = p.x + dx - (anchor === "start" ? 0 : anchor === "end" ? wide : wide / 2);
      const box = { l: left, r: left + wide, t: p.y + dy - 11, b: p.y + dy + 3 };
      const free = box.l > BOX.left && box.r < W && box.t > 0 && box.b < BOX.bottom &&
        boxes.every((o) => box.r < o.l - 8 || box.l > o.r + 8 || box.b < o.t || box.t > o.b) &&
        all.every((o) => (o.x === p.x && o.y === p.y) || o.x < box.l - 4 || o.x > box.r + 4 || o.y < box.t - 3 || o.y > box.b + 3);
      if (free) {
        boxes.push(box);
        svg.append(s("text", { class: "label", x: p.x + dx, y: p.y + dy, "text-anchor": anchor }, text));
        break;
      }
    }
  }
}

function curves(table) {
  fit();
  const names = [...new Set(table.curves.map((p) => p.line))];
  const shown = names.slice(0, 8), points = table.curves.filter((p) => shown.includes(p.line));
  const x = scale(points.map((p) => p.n_train), [BOX.left + 10, BOX.right - 10], { log: true, pad: 0.03 });
  x.ticks = () => { const all = [...new Set(points.map((p) => p.n_train))].sort((a, b) => a - b); return all.length > 8 ? logTicks(...x.ends) : all; };
  const y = scale(points.flatMap((p) => [p.mean, p.ci_low, p.ci_high]).filter(known), [BOX.bottom, BOX.top], { pad: 0.05 });
  const svg = frame(x, y, "training examples (logarithmic)", table.metric, short, table.metric + " over the number of training examples: " + shown.join("; "));
  shown.forEach((name, k) => {
    const line = points.filter((p) => p.line === name), color = "var(--c" + k + ")", nudge = (k - (shown.length - 1) / 2) * 3;
    svg.append(s("path", { class: "line", stroke: color, d: line.map((p, j) => (j ? "L" : "M") + (x(p.n_train) + nudge) + " " + y(p.mean)).join("") }));
    for (const p of line) {
      const label = name + "\n" + p.n_train + " examples: " + score(p.mean) + (known(p.ci_low) ? " (" + interval(p.ci_low, p.ci_high) + ")" : "") + ", n = " + p.n;
      if (known(p.ci_low)) svg.append(s("line", { x1: x(p.n_train) + nudge, x2: x(p.n_train) + nudge, y1: y(p.ci_low), y2: y(p.ci_high), stroke: color, "stroke-opacity": 0.5, "stroke-width": 1.6 }));
      svg.append(s("path", { class: "point", d: SHAPES[k % 4](x(p.n_train) + nudge, y(p.mean), 4.4), fill: color, ...tipped(label) }));
    }
  });
  return [h("div", {}, svg),
    h("ul", { class: "legend" }, shown.map((name, k) => h("li", {}, s("svg", { width: 12, height: 12 }, s("path", { d: SHAPES[k % 4](6, 6, 4), fill: "var(--c" + k + ")" })), name))),
    names.length > 8 && h("p", { class: "soft small" }, "8 of " + names.length + " lines are shown; harness leaderboard --curve lists all.")];
}

function effect(d, to) {
  const sure = d.low > 0 || d.high < 0, color = sure ? "var(--accent)" : "var(--soft)";
  return s("svg", { width: 200, height: 20, viewBox: "0 0 200 20", "aria-hidden": "true" },
    s("line", { class: "axis", x1: to(0), x2: to(0), y1: 0, y2: 20 }),
    s("line", { x1: to(d.low), x2: to(d.high), y1: 10, y2: 10, stroke: color, "stroke-width": 2 }),
    s("circle", { cx: to(d.effect), cy: 10, r: 4, fill: color }));
}
