// Everyday words, and elements made of text alone: nothing that anybody named ever becomes markup.

// Characters that would hide, move or colour others are shown by their number.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function shown(name) {
  return String(name).replace(HIDDEN, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

// Output as a terminal leaves it: without colours, and of a line that was written over, the last state.
export function written(words) {
  const plain = words.replace(/\u001b\[[0-9;?]*[A-Za-z]/g, "").replaceAll("\r\n", "\n").replace(/[^\n]*\r/g, "");
  return plain.split("\n").map((line) => line.split("\t").map(shown).join("\t")).join("\n");
}

export function el(tag, given = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "on") for (const [event, does] of Object.entries(value)) made.addEventListener(event, does);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
}

export function svg(tag, given = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(given)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

export const named = (name) => el("bdi", {}, shown(name));

export function say(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

// Rows are kept while their job is there, so that whoever stands on one is not thrown off it.
export function sync(parent, items, keyOf, make, update) {
  const held = parent.contains(document.activeElement) ? document.activeElement : null;
  const old = new Map(Array.from(parent.children, (child) => [child.dataset.key, child]));
  const keys = new Set(items.map((item) => String(keyOf(item))));
  for (const [key, node] of old) if (!keys.has(key)) node.remove();
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let node = old.get(key);
    if (node === undefined) { node = make(item); node.dataset.key = key; }
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
    const mark = JSON.stringify(item);
    if (node.mark !== mark) { update(node, item); node.mark = mark; }
  }
  if (held !== null && held.isConnected && held !== document.activeElement) held.focus({ preventScroll: true });
}

export function bytes(n) {
  if (!n) return "0";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(Math.floor(Math.log2(n) / 10), 4);
  const value = n / 2 ** (10 * power);
  return `${value >= 100 ? Math.round(value) : Number(value.toPrecision(3))} ${units[power]}`;
}

export function duration(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return "";
  s = Math.max(0, Math.round(s));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const percent = (x) => (x === null || x === undefined ? "not known" : `${Math.round(100 * x)} %`);
export const milli = (m) => `${Number((m / 10).toFixed(1))} %`;

// Of another day than today, a time is told with its date.
function told(wall, parts) {
  const at = new Date(1000 * wall), now = new Date();
  const time = at.toLocaleTimeString([], { ...parts, hourCycle: "h23" });
  if (at.toDateString() === now.toDateString()) return time;
  const year = at.getFullYear() === now.getFullYear() ? {} : { year: "numeric" };
  return `${at.toLocaleDateString([], { day: "numeric", month: "short", ...year })} ${time}`;
}

export const clock = (wall) => told(wall, { hour: "2-digit", minute: "2-digit" });
export const moment = (wall) => told(wall, { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const STATES = {
  waiting: ["waiting", ""], held: ["suspended by its owner", "warn"], running: ["running", "good"],
  paused: ["paused, holding memory", "warn"], stopping: ["leaving its devices", "warn"],
  suspended: ["suspended, waits for room", "warn"], done: ["done", "good"], failed: ["failed", "bad"],
  cancelled: ["cancelled", ""], rejected: ["refused", "bad"], lost: ["lost", "bad"],
};
export const ENDED = new Set(["done", "failed", "cancelled", "rejected", "lost"]);
export const WAITING = new Set(["waiting", "suspended", "held"]);

export function state(status) {
  const [words, kind] = STATES[status] || [shown(status), ""];
  return el("span", { class: `state ${kind}` }, words);
}
export const stateWords = (status) => (STATES[status] || [shown(status)])[0];

export function factsInWords(facts) {
  return Object.entries(facts || {})
    .map(([name, value]) => (typeof value === "number" && PART.test(name)) ? part(name, value) : `${shown(name).replace(/_s$/, " in seconds").replaceAll("_", " ")} ${plain(value)}`)
    .join(", ");
}

// Thousandths of a device or of cores, as people say them.
const PART = /(^|_)milli(_|$)/;
function part(name, value) {
  const words = shown(name).split("_").filter((word) => word !== "milli");
  const cores = words.indexOf("cpu");
  if (cores < 0) return `${words.join(" ")} ${milli(value)}`;
  words[cores] = "cores";
  return `${words.join(" ")} ${Number((value / 1000).toFixed(3))}`;
}

function plain(value) {
  if (typeof value === "number") return String(Number(value.toPrecision(4)));
  return shown(typeof value === "string" ? value : JSON.stringify(value)).slice(0, 120);
}
