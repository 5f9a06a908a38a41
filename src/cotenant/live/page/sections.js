// The sections of the page, each from what the scheduler says now.

import { inside, scatter, timeline } from "/page/charts.js";
import { ENDED, WAITING, bytes, clock, duration, el, factsInWords, milli, moment, named, percent, say, shown, state, stateWords, svg, sync } from "/page/words.js";

const $ = (id) => document.getElementById(id);
const PAGE = 100;
export const more = { queue: 20, jobs: 50 };

export function jobButton(id, name, open) {
  return el("button", { type: "button", class: "name", on: { click: () => open(id) } }, named(name || `job ${id}`));
}

export function facts(status) {
  say($("facts"), `Policy ${shown(status.policy)}, forecast ${shown(status.forecast)}, version ${shown(status.version)}, process ${status.pid}, up for ${duration(status.now - status.started)}.`);
  const tiles = [["running", status.running], ["waiting", status.waiting], ["devices", status.devices], ["ended well", status.counts.done || 0], ["failed or lost", (status.counts.failed || 0) + (status.counts.lost || 0)]];
  sync($("tiles"), tiles, (t) => t[0], () => el("li", {}, el("strong"), el("span")), (node, [word, n]) => {
    say(node.firstChild, n.toLocaleString("en"));
    say(node.lastChild, word);
  });
  $("warnings").hidden = !status.warnings.length;
  sync($("warnings"), status.warnings, (w) => w, () => el("li"), (node, words) => say(node, shown(words)));
}

// -- devices ---------------------------------------------------------------------------

function meter(word) {
  const bar = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  bar.append(svg("rect", { class: "used", x: 0, y: 0, width: 0, height: 10 }), svg("rect", { class: "foreign", x: 0, y: 0, width: 0, height: 10 }));
  return el("div", { class: "meter" }, el("span", {}, word), bar, el("span"));
}

function fill(node, used, foreign, words) {
  const [a, b] = node.children[1].children;
  a.setAttribute("width", 100 * Math.min(used, 1));
  b.setAttribute("x", 100 * Math.min(used, 1));
  b.setAttribute("width", 100 * Math.min(foreign, 1 - Math.min(used, 1)));
  say(node.lastChild, words);
}

function deviceCard(device) {
  const table = el("table", {}, el("caption", { class: "unseen" }, `Jobs on ${shown(device.name)}`),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Job"), el("th", { scope: "col", class: "number" }, "Share"), el("th", { scope: "col", class: "number" }, "Memory"), el("th", { scope: "col", class: "number" }, "Speed"))), el("tbody"));
  const head = el("div", { class: "top" }, el("h3"), el("span"));
  return el("article", { class: "card device", "data-device": device.device }, head, el("p", { class: "soft" }), meter("memory"), meter("busy"), meter("promised"), table, el("p", { class: "soft" }));
}

export function devices(list, open) {
  $("devices-empty").hidden = list.length > 0;
  sync($("devices-list"), list, (d) => d.device, deviceCard, (node, d) => {
    const [head, what, memory, busy, promised, table, nobody] = node.children;
    say(head.firstChild, shown(d.name));
    const kind = d.state.startsWith("down") ? "bad" : d.state === "up" ? "good" : "warn";
    head.lastChild.className = `state ${kind}`;
    say(head.lastChild, d.state === "up" ? "ready" : d.state === "drained" ? "starts no new jobs" : shown(d.state));
    const foreign = d.foreign_bytes ? `; others, not of this scheduler, hold ${bytes(d.foreign_bytes)}` : "";
    say(what, `${shown(d.device_type)}${foreign}`);
    const all = d.memory_bytes || 1;
    const used = Math.max(d.memory_used_bytes - d.foreign_bytes, 0);
    fill(memory, used / all, d.foreign_bytes / all, `${bytes(d.memory_used_bytes)} of ${bytes(d.memory_bytes)}`);
    fill(busy, d.busy || 0, 0, percent(d.busy));
    fill(promised, 1 - d.free_milli / 1000, 0, milli(1000 - d.free_milli));
    table.hidden = !d.residents.length;
    sync(table.tBodies[0], d.residents, (r) => r.id, (r) => el("tr", {}, el("th", { scope: "row" }, jobButton(r.id, r.name, open)), el("td", { class: "number" }), el("td", { class: "number" }), el("td", { class: "number" })), resident);
    nobody.hidden = d.residents.length > 0;
    say(nobody, d.state.startsWith("down") ? "Cannot be used now." : "Nobody is on it.");
  });
}

function resident(row, r) {
  const [, share, memory, speed] = row.cells;
  const ceiling = r.compute_limit_milli > r.compute_milli ? `up to ${milli(r.compute_limit_milli)}` : r.mode === "exclusive" ? "alone" : "";
  share.replaceChildren(milli(r.compute_milli), el("span", { class: "sub" }, ceiling));
  say(memory, r.memory_bytes ? bytes(r.memory_bytes) : "all");
  const told = r.predicted_speed ? `predicted ${percent(r.predicted_speed[0])}` : "nothing predicted";
  speed.replaceChildren(r.measured_speed === null ? "not measured" : percent(r.measured_speed), el("span", { class: "sub" }, told));
}

// -- queue and jobs --------------------------------------------------------------------

function asks(job) {
  const words = [`${job.gpus} ${job.gpus === 1 ? "device" : "devices"}`];
  if (job.compute_milli < 1000) words.push(`${milli(job.compute_milli)} of each`);
  if (job.memory_bytes) words.push(bytes(job.memory_bytes));
  return words.join(", ");
}

export function queue(jobs, now, open) {
  const list = jobs.filter((j) => WAITING.has(j.status)).sort((a, b) => b.priority - a.priority || a.submitted - b.submitted || a.id - b.id);
  const some = list.slice(0, more.queue).map((j) => ({ id: j.id, name: j.name, asks: asks(j), waits: duration(now - j.submitted), reason: j.reason, status: j.status, priority: j.priority }));
  const held = list.filter((j) => j.status === "held").length;
  const others = (list.length - held).toLocaleString("en");
  say($("queue-count"), held ? `${others}, and ${held.toLocaleString("en")} suspended by owners` : list.length ? others : "");
  $("queue-empty").hidden = list.length > 0;
  $("queue-rows").closest(".scroll").hidden = !list.length;
  sync($("queue-rows"), some, (j) => j.id, (j) => el("tr", {}, el("th", { scope: "row" }, jobButton(j.id, j.name, open), el("span", { class: "sub" })), el("td", { class: "wide" }), el("td", { class: "number" }), el("td", { class: "words" })), (row, j) => {
    const [name, wants, waits, why] = row.cells;
    say(name.lastChild, `number ${j.id}${j.priority ? `, priority ${j.priority}` : ""}`);
    say(wants, j.asks);
    say(waits, j.waits);
    say(why, shown(j.reason) || stateWords(j.status));
  });
  rest($("queue-more"), list.length, "queue");
}

function rest(button, count, which) {
  button.hidden = count <= more[which];
  say(button, `Show ${Math.min(PAGE, count - more[which])} more of ${(count - more[which]).toLocaleString("en")}`);
}

export function jobs(all, open) {
  $("jobs-empty").hidden = all.length > 0;
  $("jobs-some").hidden = !all.length;
  const [which, find] = [$("which").value, $("find").value.trim().toLowerCase()];
  // Who looks for a job wants it wherever it is.
  const there = (j) => find || which === "all" || (which === "ended" ? ENDED.has(j.status) : !ENDED.has(j.status) && !WAITING.has(j.status));
  const fits = (j) => there(j) && (!find || `${j.id} ${j.name} ${j.user} ${j.tenant}`.toLowerCase().includes(find));
  const list = all.filter(fits).reverse();
  const some = list.slice(0, more.jobs).map((j) => ({ id: j.id, name: j.name, who: [j.user, j.tenant].filter(Boolean).join(", "), status: j.status, where: j.devices, share: j.devices.length ? shares(j) : asks(j), progress: progress(j), ends: ends(j) }));
  $("jobs-none").hidden = list.length > 0;
  say($("jobs-none"), find ? "No job like that." : which === "ended" ? "No job has ended yet." : "No job is on a device now.");
  $("jobs-rows").closest(".scroll").hidden = !list.length;
  sync($("jobs-rows"), some, (j) => j.id, (j) => el("tr", {}, el("th", { scope: "row" }, jobButton(j.id, j.name, open), el("span", { class: "sub" })), el("td"), el("td", { class: "wide" }), el("td", { class: "wide" }), el("td"), el("td", { class: "wide" })), (row, j) => {
    const [name, status, where, share, done, until] = row.cells;
    say(name.lastChild, `number ${j.id}${j.who ? `, ${shown(j.who)}` : ""}`);
    status.replaceChildren(state(j.status));
    say(where, j.where.map(shown).join(", "));
    say(share, j.share);
    say(done, j.progress);
    say(until, j.ends);
  });
  rest($("jobs-more"), list.length, "jobs");
}

function shares(j) {
  if (j.compute_milli >= 1000) return "whole";
  return `${milli(j.compute_milli)}${j.compute_limit_milli > j.compute_milli ? `, up to ${milli(j.compute_limit_milli)}` : ""}`;
}

function progress(j) {
  if (j.total_steps) return `${percent(j.steps / j.total_steps)} (${j.steps.toLocaleString("en")} of ${j.total_steps.toLocaleString("en")} steps)`;
  return j.steps ? `${j.steps.toLocaleString("en")} steps` : j.started && !j.ended ? "no steps told" : "";
}

function ends(j) {
  if (j.ended) return clock(j.ended);
  return j.ends_at ? `about ${clock(j.ends_at[0])}, ${clock(j.ends_at[1])} to ${clock(j.ends_at[2])}` : j.status === "running" ? shown(j.reason) : "";
}

// -- pictures and actions --------------------------------------------------------------

export function times(history, list, all, now, open) {
  const span = Number($("span").value);
  const byId = new Map(all.map((j) => [j.id, j]));
  const nameOf = (id) => (byId.get(id) || history.jobs.get(id) || { name: `job ${id}` }).name;
  const pieces = history.pieces.map((p) => ({ ...p, from: history.wall(p.from), to: p.to === null ? now : history.wall(p.to), running: p.to === null, name: nameOf(p.id) }));
  const seen = new Set(history.open.keys());
  const numbers = new Map(list.map((d) => [d.name, d.device]));
  for (const j of all) {
    // Started before the log that was asked for.
    if (seen.has(j.id) || !j.devices.length || j.started === null || j.ended !== null) continue;
    for (const d of j.devices) if (numbers.has(d)) pieces.push({ device: numbers.get(d), id: j.id, from: j.started, to: now, running: true, then: "", name: j.name });
  }
  // No empty hour before the first job: but a minute at least.
  const first = Math.min(now - 60, ...pieces.filter((p) => p.from !== null).map((p) => p.from));
  const from = Math.max(now - span, first);
  const some = pieces.filter((p) => p.from !== null && p.to > from && p.from < now);
  const width = Math.max(300, $("timeline-plot").clientWidth);
  $("timeline-plot").replaceChildren(timeline(list, some, from, now, width, open));
  say($("timeline-text"), some.length ? `${some.length.toLocaleString("en")} stays of jobs on ${list.length} ${list.length === 1 ? "device" : "devices"}, ${clock(from)} to ${clock(now)}.` : `No job was on a device, ${clock(from)} to ${clock(now)}.`);
  const rows = some.slice(-200).reverse().map((p) => ({ ...p, where: (list.find((d) => d.device === p.device) || { name: `device ${p.device}` }).name }));
  sync($("timeline-rows"), rows.map((p) => ({ k: `${p.device} ${p.id} ${p.from}`, where: p.where, name: p.name, from: clock(p.from), to: p.running ? "now" : clock(p.to), then: p.running ? "runs" : p.then })), (r) => r.k, () => el("tr", {}, el("th", { scope: "row" }), el("td"), el("td", { class: "number" }), el("td", { class: "number" }), el("td")), (row, r) => [r.where, r.name, r.from, r.to, r.then].forEach((w, i) => say(row.cells[i], shown(w))));
}

export function speeds(history, list) {
  const points = new Map(history.points);
  for (const d of list) {
    for (const r of d.residents) {
      if (r.predicted_speed && r.measured_speed !== null) points.set(r.id, { id: r.id, name: r.name, mean: r.predicted_speed[0], low: r.predicted_speed[1], high: r.predicted_speed[2], measured: r.measured_speed });
    }
  }
  const some = [...points.values()].map((p) => ({ ...p, name: p.name || (history.jobs.get(p.id) || { name: `job ${p.id}` }).name }));
  const good = some.filter(inside).length;
  say($("speeds-text"), some.length ? `${good} of ${some.length} measured speeds lie inside the range that was predicted (disc; hollow square: outside). The bar is the range, the dashed line where both are equal.` : "Nothing to compare yet: it takes two jobs side by side on one device that have both been measured.");
  $("speeds-plot").replaceChildren(...(some.length ? [scatter(some, Math.max(280, $("speeds-plot").clientWidth))] : []));
  sync($("speeds-rows"), some, (p) => p.id, () => el("tr", {}, el("th", { scope: "row" }), el("td", { class: "number" }), el("td", { class: "number" }), el("td", { class: "number" }), el("td")), (row, p) => [shown(p.name), percent(p.mean), `${percent(p.low)} to ${percent(p.high)}`, percent(p.measured), inside(p) ? "yes" : "no"].forEach((w, i) => say(row.cells[i], w)));
}

const DONE = { suspended: "suspended", stopped: "stopped", resumed: "went on", moved: "moved", resized: "resized" };

export function actions(history, all, open) {
  const byId = new Map(all.map((j) => [j.id, j.name]));
  const nameOf = (id) => byId.get(id) || (history.jobs.get(id) || { name: `job ${id}` }).name;
  const list = history.actions.slice(-100).reverse().map((a, i) => ({ ...a, i: `${a.t} ${a.id} ${a.kind}`, name: nameOf(a.id), forName: a.other >= 0 ? nameOf(a.other) : "", wall: history.wall(a.t) }));
  $("actions-empty").hidden = list.length > 0;
  $("actions-rows").closest(".scroll").hidden = !list.length;
  sync($("actions-rows"), list, (a) => a.i, (a) => el("tr", {}, el("td", { class: "number" }), el("th", { scope: "row" }, jobButton(a.id, a.name, open), el("span", { class: "sub" })), el("td", { class: "words" })), (row, a) => {
    say(row.cells[0], a.wall === null ? "" : moment(a.wall));
    say(row.cells[1].lastChild, DONE[a.kind] + (a.share && a.share.compute_milli ? ` to ${milli(a.share.compute_milli)}` : ""));
    const told = factsInWords(a.why.facts);
    const rule = a.why.rule === "asked-by-owner" ? "asked for by its owner" : shown(a.why.rule || "").replaceAll("-", " ");
    const words = [rule, told];
    const gain = a.forName ? `room for ${shown(a.forName)}` : "";
    say(row.cells[2], [gain, ...words].filter(Boolean).join("; ") || "asked for by its owner");
  });
}
