"use strict";
// All elements are created here, always with text nodes: strings from data are never parsed as HTML.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attrs, children) {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}
const h = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);
const s = (tag, attrs, ...children) => fill(document.createElementNS(SVG, tag), attrs, children);

const known = (x) => x !== null && x !== undefined;
function score(x) {
  if (!known(x)) return "";
  return Math.abs(x) < 10 ? x.toFixed(4) : x.toFixed(2);
}
function short(x) {
  if (!known(x)) return "";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(x) >= size) return Number((x / size).toPrecision(3)) + unit;
  }
  return String(Number(x.toPrecision(3)));
}
const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
// long names may break after punctuation, never inside a word or a number
const soft = (text) => text.split(/(?<=[\/=_,]|\.(?!\d))/).flatMap((part, k) => (k ? [h("wbr"), part] : [part]));
const DEEP = 70; // share of colour above which the text on it is light instead of dark
const signed = (x) => (x > 0 ? "+" : x < 0 ? "−" : "") + Math.abs(x).toFixed(4);
const pvalue = (p) => (p < 0.0001 ? "< 0.0001" : p.toFixed(p < 0.01 ? 4 : 3));
const interval = (low, high) => score(low) + " to " + score(high);
const count = (n, what) => n + " " + what + (n === 1 ? "" : "s");
const COST = {
  train_seconds: "training time (s)", encode_seconds: "encoding time (s)", eval_seconds: "evaluation time (s)",
  peak_memory_mb: "peak memory (MB)", parameters: "parameters", trained_parameters: "trained parameters",
  storage_mb: "storage per task (MB)",
};

// 1, 2 or 5 times a power of ten, about `most` of them between low and high
function ticks(low, high, most) {
  if (!(high > low)) return [low];
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(i * step);
  return out;
}
function logTicks(low, high) {
  const out = [];
  for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) {
    for (const m of [1, 2, 5]) if (m * 10 ** p >= low * 0.999 && m * 10 ** p <= high * 1.001) out.push(m * 10 ** p);
  }
  return out.length > 7 ? out.filter((t) => Math.log10(t) % 1 === 0) : out;
}
// map values to pixels; a range of 0 is widened
function scale(values, pixels, { log = false, pad = 0.04 } = {}) {
  const f = log ? Math.log10 : (x) => x;
  let low = Math.min(...values.map(f)), high = Math.max(...values.map(f));
  if (high - low < 1e-12) { low -= log ? 0.2 : Math.abs(low) * 0.05 || 0.05; high += log ? 0.2 : Math.abs(high) * 0.05 || 0.05; }
  const room = (high - low) * pad;
  low -= room; high += room;
  const to = (x) => pixels[0] + ((f(x) - low) / (high - low)) * (pixels[1] - pixels[0]);
  to.ends = log ? [10 ** low, 10 ** high] : [low, high];
  to.ticks = (most) => (log ? logTicks(...to.ends) : ticks(low, high, most));
  return to;
}

const tip = document.getElementById("tip");
function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const box = event.target.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const x = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
  const above = box.top - own.height - 8;
  tip.style.left = x + "px";
  tip.style.top = (above > 4 ? above : box.bottom + 8) + "px";
}
const hideTip = () => { tip.hidden = true; };
const tipped = (text) => ({
  onmouseenter: (e) => showTip(e, text), onmouseleave: hideTip, onfocus: (e) => showTip(e, text), onblur: hideTip,
});

function select(label, options, value, onchange) {
  const id = "s" + (select.n = (select.n || 0) + 1);
  const node = h("select", { id, onchange: () => onchange(node.value) },
    options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return h("span", {}, h("label", { for: id, class: "soft small" }, label + " "), node);
}
