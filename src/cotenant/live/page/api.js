// Talking to the scheduler. The token is in a cookie that scripts cannot read.

export class Refusal extends Error {
  constructor(status, problem) {
    super(problem.message || `status ${status}`);
    this.status = status;
    this.hint = problem.hint || "";
  }
}

async function answered(response) {
  if (response.ok) return response;
  let problem = {};
  try { problem = await response.json(); } catch { /* no JSON: the status says enough */ }
  throw new Refusal(response.status, problem);
}

const patience = () => AbortSignal.timeout(20000);

export async function get(path) {
  return (await answered(await fetch(path, { cache: "no-store", signal: patience() }))).json();
}

export async function text(path) {
  const response = await answered(await fetch(path, { cache: "no-store", signal: patience() }));
  return new TextDecoder("utf-8").decode(await response.arrayBuffer());
}

export async function post(path, body) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Cotenant": "1" },
    body: JSON.stringify(body),
    signal: patience(),
  });
  return (await answered(response)).json();
}

// A key for a request: asking again with it, after a lost connection, does nothing twice.
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "page-" + Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

export function command(id, kind, key, more) {
  return post(`/v1/jobs/${Number(id)}/${kind}`, { key, ...more });
}

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const SILENCE_MS = 45000;

// Server-sent events, read with fetch: unlike EventSource it tells a lost session from a lost network.
export async function listen(heard, state, after) {
  let last = after;
  let pause = 500;
  for (;;) {
    const stop = new AbortController();
    let silence = setTimeout(() => stop.abort(), SILENCE_MS);
    try {
      const headers = last === null ? {} : { "Last-Event-ID": String(last) };
      const response = await fetch("/v1/events", { headers, cache: "no-store", signal: stop.signal });
      if (response.status === 401) { state("signed-out"); return; }
      if (!response.ok) throw new Error(String(response.status));
      state("on");
      pause = 500;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE_MS);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) last = one(block, heard, last);
      }
    } catch { /* told below */ } finally { clearTimeout(silence); }
    state("lost");
    await wait(pause);
    pause = Math.min(pause * 2, 8000);
  }
}

function one(block, heard, last) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
  }
  if (!("data" in fields)) return last;
  if (fields.event === "reset") { heard("reset", 0, {}); return null; }
  const told = JSON.parse(fields.data);
  heard(told.kind, told.n, told.facts);
  return told.n;
}
