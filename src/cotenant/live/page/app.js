// What the page does: signs in, asks for everything, listens for changes, and draws.

import { Refusal, get, listen, post, text } from "/page/api.js";
import { History } from "/page/fold.js";
import * as jobs from "/page/job.js";
import * as sections from "/page/sections.js";
import { moment, say, shown, stateWords } from "/page/words.js";

const $ = (id) => document.getElementById(id);
const PAST_EVENTS = 5000;
const QUIET_MS = 1000;
const CALM_MS = 5000;
const CALM = new Set(["progress", "rated", "sampled", "memo", "foretold"]);
const ANYWAY_MS = 10000;

let history = new History();
let seen = null;
let pending = null;
let busy = false;
let again = false;
let listening = false;

async function load() {
  // Jobs that ended long ago are asked for only by who looks for them: lists cost the scheduler time.
  const most = $("which").value !== "here" || $("find").value.trim() ? 5000 : 200;
  const [status, devices, live, late] = await Promise.all([get("/v1/status"), get("/v1/devices"), get("/v1/jobs?live=1&limit=5000"), get(`/v1/jobs?limit=${most}`)]);
  const byId = new Map([...late.jobs, ...live.jobs].map((job) => [job.id, job]));
  seen = { status, devices: devices.devices, jobs: [...byId.values()].sort((a, b) => a.id - b.id) };
  for (const d of seen.devices) history.types.set(d.device, d.device_type);
}

async function past() {
  const after = Math.max(0, seen.status.events - PAST_EVENTS);
  const lines = (await text(`/v1/log?after=${after}`)).split("\n").filter(Boolean);
  const byId = new Map(seen.jobs.map((j) => [j.id, j]));
  history = new History();
  for (const d of seen.devices) history.types.set(d.device, d.device_type);
  for (const line of lines) {
    const event = JSON.parse(line);
    history.see(event.e, event);
    const view = event.e === "submitted" ? byId.get(event.job.id) : event.e === "started" ? byId.get(event.id) : undefined;
    if (event.e === "submitted" && view) history.offset = view.submitted - event.job.submit_s;
    else if (history.offset === null && view && view.started !== null && view.attempt === event.attempt && !event.resumed) history.offset = view.started - event.t;
  }
  // What the stream tells again is known already.
  history.upTo = Math.max(seen.status.events, after + lines.length);
}

function draw() {
  if (seen === null) return;
  const { status, devices, jobs: list } = seen;
  sections.facts(status);
  sections.devices(devices, jobs.open);
  sections.queue(list, status.now, jobs.open);
  sections.jobs(list, jobs.open);
  sections.times(history, devices, list, status.now, jobs.open);
  sections.speeds(history, devices);
  sections.actions(history, list, jobs.open);
  document.title = `${status.running} running, ${status.waiting} waiting · cotenant`;
}

// At most one refresh at a time, and one a second: events only say that something changed.
async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  again = false;
  try {
    await load();
    draw();
    await jobs.refresh();
    link("on");
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) signedOut();
    else link("lost");
  } finally {
    busy = false;
    if (again) soon();
  }
}

let due = 0;
function soon(wait = QUIET_MS) {
  const at = Date.now() + wait;
  if (pending !== null && due <= at) return;
  clearTimeout(pending);
  due = at;
  // Nobody looks: what there is to see is asked for when somebody does.
  pending = setTimeout(() => { pending = null; if (!document.hidden) refresh(); }, wait);
}

let toldAt = 0;
function tell(kind, facts) {
  const words = { submitted: "was submitted", started: "started", suspended: "is suspended", ended: "ended", rejected: "was refused", moved: "moved", resized: "was resized" }[kind];
  if (words === undefined || facts.name === undefined) return;
  // Not more often than can be listened to.
  const now = Date.now();
  if (now - toldAt < 4000) return;
  toldAt = now;
  say($("told"), `${shown(facts.name)} ${kind === "ended" && facts.status ? `: ${stateWords(facts.status)}` : words}`);
}

function heard(kind, number, facts) {
  if (kind === "reset") { past().then(() => soon(), () => soon()); return; }
  if (number > history.upTo) history.see(kind, facts);
  tell(kind, facts);
  soon(CALM.has(kind) ? CALM_MS : QUIET_MS);
}

// -- the connection ----------------------------------------------------------------------

let lostSince = null;
function link(state) {
  const words = { on: "connected, shows changes as they happen", lost: "connection lost", off: "not connected" };
  $("link").dataset.state = state;
  say($("link-text"), words[state]);
  document.body.classList.toggle("stale", state === "lost");
  if (state !== "lost") { lostSince = null; $("lost").hidden = true; return; }
  if (lostSince === null) {
    lostSince = Date.now() / 1000;
    say($("lost"), `Connection lost at ${moment(lostSince)}. What you see is from then; jobs go on without this page. Trying again…`);
    $("lost").hidden = false;
  }
}

function signedOut() {
  link("off");
  for (const id of ["content", "sections", "sign-out", "help-open"]) $(id).hidden = true;
  for (const open of document.querySelectorAll("dialog[open]")) open.close();
  $("lost").hidden = true;
  $("sign-in").hidden = false;
  $("token").focus();
}

async function begin() {
  try {
    await get("/v1/me");
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) { signedOut(); return; }
    link("lost");
    setTimeout(begin, 2000);
    return;
  }
  $("sign-in").hidden = true;
  for (const id of ["content", "sections", "sign-out", "help-open"]) $(id).hidden = false;
  await refresh();
  if (seen !== null) await past().then(draw, () => {});
  if (listening) return;
  listening = true;
  listen(heard, (state) => {
    if (state === "signed-out") { listening = false; signedOut(); }
    else if (state === "lost") { link("lost"); soon(); }
    else soon();
  }, history.upTo);
}

// -- wiring --------------------------------------------------------------------------------

async function signIn(event) {
  event.preventDefault();
  say($("sign-in-error"), "");
  try {
    await post("/login", { token: $("token").value.trim() });
    $("token").value = "";
    await begin();
    $("main").focus({ preventScroll: true });
  } catch (error) {
    const wrong = error instanceof Refusal && error.status === 401;
    say($("sign-in-error"), wrong ? "This token is not known here." : error instanceof Refusal ? `${shown(error.message)}. ${shown(error.hint)}` : "The scheduler cannot be reached.");
    $("token").focus();
  }
}

const GO = { 1: "devices", 2: "queue", 3: "jobs", 4: "timeline", 5: "speeds", 6: "actions" };

function key(event) {
  const typing = event.target.closest("input, select, textarea");
  if (event.ctrlKey || event.altKey || event.metaKey || typing || !$("keys-on").checked || $("content").hidden) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "?") $("help").showModal();
  else if (event.key === "/" && !$("jobs-some").hidden) $("find").focus();
  else if (event.key === "r") refresh();
  else if (GO[event.key] !== undefined) { $(`${GO[event.key]}-title`).focus(); $(GO[event.key]).scrollIntoView(); }
  else return;
  event.preventDefault();
}

function wire() {
  jobs.wire();
  $("sign-in-form").addEventListener("submit", signIn);
  $("sign-out").addEventListener("click", () => post("/logout", {}).then(() => location.reload(), signedOut));
  $("help-open").addEventListener("click", () => $("help").showModal());
  for (const id of ["find", "which", "span"]) $(id).addEventListener("input", () => { draw(); if (id !== "span") soon(300); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !$("content").hidden) refresh(); });
  for (const which of ["queue", "jobs"]) $(`${which}-more`).addEventListener("click", () => { sections.more[which] += 100; draw(); });
  document.addEventListener("keydown", key);
  let wide = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; draw(); } });
  setInterval(() => { if (!document.hidden && !$("content").hidden) refresh(); }, ANYWAY_MS);
}

wire();
begin();
