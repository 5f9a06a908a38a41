// One job: what it is, what happened to it, its output, and what can be asked of it.

import { Refusal, command, get, newKey, text } from "/page/api.js";
import { ENDED, bytes, duration, el, milli, moment, named, percent, say, shown, state, written } from "/page/words.js";

const $ = (id) => document.getElementById(id);
const TAIL = 16384;
let current = null;
let lastStory = "";

export const openJob = () => (($("job").open) ? current : null);

export async function open(id) {
  current = id;
  lastStory = "";
  say($("job-said"), "");
  say($("job-output"), "");
  $("job-story").replaceChildren();
  if (!$("job").open) $("job").showModal();
  await refresh();
  $("job-title").focus();
}

export async function refresh() {
  const id = current;
  if (id === null || !$("job").open) return;
  try {
    const job = await get(`/v1/jobs/${id}`);
    if (id !== current) return;
    facts(job);
    buttons(job);
    const mark = `${job.status} ${job.attempt} ${job.suspensions} ${job.devices.join()}`;
    if (mark !== lastStory) { await story(id); lastStory = mark; }
    await output(id);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    say($("job-said"), shown(error.message));
  }
}

function facts(job) {
  $("job-title").replaceChildren(named(job.name), ` (${job.id})`);
  $("job-line").replaceChildren(state(job.status), ` ${shown(job.reason)}`);
  const three = (t, f) => (t ? `${f(t[0])}, most likely between ${f(t[1])} and ${f(t[2])}` : "");
  const rows = [
    ["Command", job.command.map(shown).join(" ")],
    ["Who", [job.user, job.tenant].filter(Boolean).map(shown).join(", ")],
    ["Asks for", `${job.gpus} ${job.gpus === 1 ? "device" : "devices"}`],
    ["Where", job.devices.map(shown).join(", ")],
    ["Share", job.compute_milli < 1000 ? `${milli(job.compute_milli)} for sure, up to ${milli(job.compute_limit_milli)}` : "whole devices"],
    ["Memory", job.memory_bytes ? `${bytes(job.memory_bytes)} allowed${job.memory_used_bytes ? `, ${bytes(job.memory_used_bytes)} used` : ""}` : job.memory_used_bytes ? `${bytes(job.memory_used_bytes)} used` : ""],
    ["Priority", String(job.priority)],
    ["Submitted", moment(job.submitted)],
    ["Started", job.started === null ? "" : moment(job.started)],
    ["Ended", job.ended === null ? "" : moment(job.ended)],
    ["Steps", job.total_steps ? `${job.steps.toLocaleString("en")} of ${job.total_steps.toLocaleString("en")}` : job.steps ? job.steps.toLocaleString("en") : ""],
    ["Time a step", job.step_s ? `${Number((1000 * job.step_s).toPrecision(3))} ms` : ""],
    ["Work expected", three(job.predicted_s, duration)],
    ["Should end", three(job.ends_at, moment)],
    ["Speed", job.predicted_speed || job.measured_speed ? `${job.measured_speed === null ? "not measured" : `${percent(job.measured_speed)} measured`}, ${job.predicted_speed ? `${percent(job.predicted_speed[0])} predicted (${percent(job.predicted_speed[1])} to ${percent(job.predicted_speed[2])})` : "nothing predicted"}` : ""],
    ["Processes killed", job.killed_processes ? `${job.killed_processes}, and replaced` : ""],
    ["Suspended", job.suspensions === 1 ? "once" : job.suspensions ? `${job.suspensions} times` : ""],
    ["Waits for", job.after.length ? `job ${job.after.join(", ")}` : ""],
    ["Exit code", job.exit_code === null ? "" : String(job.exit_code)],
  ].filter(([, words]) => words !== "");
  const mark = JSON.stringify(rows);
  if ($("job-facts").mark === mark) return;
  $("job-facts").mark = mark;
  $("job-facts").replaceChildren(...rows.flatMap(([term, words]) => [el("dt", {}, term), el("dd", {}, words)]));
}

async function story(id) {
  const told = await get(`/v1/jobs/${id}/explain`);
  if (id !== current) return;
  const steps = Array.isArray(told.steps) ? told.steps : [];
  $("job-story").replaceChildren(...steps.map((s) => el("li", {}, el("time", {}, s.wall === undefined ? duration(s.t) : moment(s.wall)), el("span", {}, shown(s.text)))));
  const over = (told.waits ?? []).at(-1)?.end_s != null;
  say($("job-unblock"), told.unblock ? `${over ? "What would have shortened its longest wait, now over" : "What would have helped"}: ${shown(told.unblock)}.` : steps.length ? "" : shown(told.verdict || ""));
}

async function output(id) {
  const words = await text(`/v1/jobs/${id}/logs?stream=${$("job-stream").value}&offset=-${TAIL}&limit=${TAIL}`);
  if (id !== current) return;
  const box = $("job-output");
  const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
  say(box, written(words) || "Nothing was written.");
  if (atEnd) box.scrollTop = box.scrollHeight;
}

// -- asking for something ----------------------------------------------------------------

const ASKS = {
  suspend: ["Suspend", "It leaves its devices to others until it is resumed; its state is saved first, if it can be (docs: --suspend).", (s) => !ENDED.has(s) && s !== "held", "Suspend it"],
  resume: ["Resume", "It goes on as soon as there is room.", (s) => s === "held" || s === "suspended" || s === "paused", "Resume it"],
  priority: ["Change priority", "Jobs of higher priority go first.", (s) => !ENDED.has(s), "Change it"],
  cancel: ["Cancel", "It is ended for good. What it has not saved is lost.", (s) => !ENDED.has(s), "End the job"],
};

function buttons(job) {
  const box = $("job-buttons");
  for (const [kind, [word, , allowed]] of Object.entries(ASKS)) {
    let button = box.querySelector(`[data-kind="${kind}"]`);
    if (button === null) {
      button = el("button", { type: "button", class: "quiet", "data-kind": kind, on: { click: () => ask(kind) } }, word);
      box.append(button);
    }
    button.disabled = !allowed(job.status);
  }
  box.job = job;
}

function ask(kind) {
  const job = $("job-buttons").job;
  const [word, words, , yes] = ASKS[kind];
  $("ask-title").replaceChildren(`${word}: `, named(job.name), ` (${job.id})?`);
  say($("ask-text"), words);
  say($("ask-yes"), yes);
  $("ask-field").hidden = kind !== "priority";
  $("ask-value").value = String(job.priority);
  const key = newKey();
  $("ask").returnValue = "no";
  $("ask").onclose = () => { if ($("ask").returnValue === "yes") send(job, kind, key); };
  $("ask").showModal();
  (kind === "priority" ? $("ask-value") : $("ask-no")).focus();
}

async function send(job, kind, key) {
  const more = kind === "priority" ? { priority: Math.trunc(Number($("ask-value").value)) || 0 } : {};
  say($("job-said"), "Asked…");
  try {
    await command(job.id, kind, key, more);
    say($("job-said"), `${ASKS[kind][0]}: asked for, and kept even if the scheduler stops now.`);
  } catch (error) {
    say($("job-said"), error instanceof Refusal ? `Not done: ${shown(error.message)}. ${shown(error.hint)}` : "Not done: the scheduler cannot be reached. Try again; it is safe.");
  }
  await refresh();
}

export function wire() {
  $("job-close").addEventListener("click", () => $("job").close());
  $("job").addEventListener("close", () => { current = null; });
  $("job-stream").addEventListener("change", refresh);
}
