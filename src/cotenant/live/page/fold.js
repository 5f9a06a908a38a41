// What happened, from the log's events: who was where and when, what was done and why, what was foretold and came true.

const MOST_PIECES = 4000;
const MOST_ACTIONS = 200;

export class History {
  constructor() {
    this.jobs = new Map();      // id -> { name, model }
    this.open = new Map();      // id -> { devices, pieces }
    this.on = new Map();        // device -> set of ids
    this.pieces = [];           // { device, id, from, to, then }
    this.actions = [];          // { t, id, kind, why, other, share, devices }
    this.foretold = new Map();  // type and models -> { models, mean, low, high }
    this.points = new Map();    // id -> { id, mean, low, high, measured }
    this.offset = null;         // seconds from the log's clock to 1970
    this.upTo = 0;              // number of the last event seen in the log
    this.types = new Map();     // device -> type
  }

  wall(t) { return this.offset === null ? null : t + this.offset; }

  see(kind, facts) {
    if (facts.wall !== undefined && facts.t !== undefined) this.offset = facts.wall - facts.t;
    if (facts.name !== undefined && facts.id !== undefined && !this.jobs.has(facts.id)) {
      this.jobs.set(facts.id, { name: facts.name, model: "" });
    }
    const does = { submitted: "submitted", started: "started", suspended: "left", ended: "left", rejected: "left", stopping: "stopping", moved: "moved", released: "released", resized: "resized", foretold: "told", sampled: "sampled" }[kind];
    if (does !== undefined) this[does](facts, kind);
  }

  submitted(facts) {
    this.jobs.set(facts.job.id, { name: facts.job.name, model: facts.job.model || "" });
  }

  started(facts) {
    this.close(facts.id, facts.t, "went on");
    const devices = facts.devices || [];
    this.open.set(facts.id, { devices, pieces: devices.map((d) => this.piece(d, facts)) });
    for (const d of devices) this.holders(d).add(facts.id);
    if (facts.resumed) this.did(facts, "resumed");
  }

  piece(device, facts) {
    const made = { device, id: facts.id, from: facts.t, to: null, then: "" };
    this.pieces.push(made);
    if (this.pieces.length > MOST_PIECES) this.pieces.splice(0, MOST_PIECES / 4);
    return made;
  }

  holders(device) {
    if (!this.on.has(device)) this.on.set(device, new Set());
    return this.on.get(device);
  }

  close(id, t, then) {
    const open = this.open.get(id);
    if (open === undefined) return;
    for (const one of open.pieces) if (one.to === null) { one.to = t; one.then = then; }
    for (const d of this.on.keys()) this.on.get(d).delete(id);
    this.open.delete(id);
  }

  left(facts, kind) {
    this.close(facts.id, facts.t, kind === "ended" ? facts.outcome || "ended" : kind);
  }

  stopping(facts) { this.did(facts, facts.suspend === false ? "stopped" : "suspended"); }

  moved(facts) {
    const open = this.open.get(facts.id) || { devices: [], pieces: [] };
    const fresh = (facts.devices || []).filter((d) => !open.devices.includes(d));
    open.pieces.push(...fresh.map((d) => this.piece(d, facts)));
    for (const d of fresh) this.holders(d).add(facts.id);
    open.devices = [...new Set([...open.devices, ...fresh])];
    this.open.set(facts.id, open);
    this.did(facts, "moved");
  }

  released(facts) {
    const open = this.open.get(facts.id);
    if (open === undefined) return;
    for (const d of facts.devices || []) {
      this.holders(d).delete(facts.id);
      for (const one of open.pieces) if (one.device === d && one.to === null) { one.to = facts.t; one.then = "moved"; }
    }
    open.devices = open.devices.filter((d) => !(facts.devices || []).includes(d));
  }

  resized(facts) {
    const open = this.open.get(facts.id);
    if (open !== undefined) {
      const now = facts.devices || [];
      const gone = open.devices.filter((d) => !now.includes(d));
      this.released({ t: facts.t, id: facts.id, devices: gone });
      const fresh = now.filter((d) => !open.devices.includes(d));
      open.pieces.push(...fresh.map((d) => this.piece(d, facts)));
      for (const d of fresh) this.holders(d).add(facts.id);
      open.devices = now;
    }
    this.did(facts, "resized");
  }

  did(facts, kind) {
    this.actions.push({
      t: facts.t, id: facts.id, kind, why: facts.why || {}, share: facts.share || null,
      other: facts.beneficiary === undefined ? -1 : facts.beneficiary, devices: facts.devices || [],
    });
    if (this.actions.length > MOST_ACTIONS) this.actions.splice(0, MOST_ACTIONS / 4);
  }

  told(facts) { this.foretold.set(`${facts.device_type}|${facts.models.join("|")}`, facts); }

  sampled(facts) {
    const open = this.open.get(facts.id);
    if (!facts.co_speed || open === undefined || !open.devices.length) return;
    const device = open.devices[0];
    const model = (id) => (this.jobs.get(id) || { model: "" }).model;
    const models = [...this.holders(device)].map(model).sort();
    const told = this.foretold.get(`${this.types.get(device)}|${models.join("|")}`);
    if (told === undefined) return;
    const at = models.indexOf(model(facts.id));
    this.points.set(facts.id, { id: facts.id, mean: told.mean[at], low: told.low[at], high: told.high[at], measured: facts.co_speed });
  }
}
