// Two pictures, as SVG; both have a table beside them that says the same.

import { clock, percent, shown, svg } from "/page/words.js";

const ROW = 22;
const LEFT = 104;

// Pieces of one device in as few rows as do not overlap.
function lanes(pieces) {
  const ends = [];
  for (const one of pieces) {
    let lane = ends.findIndex((end) => end <= one.from + 1e-6);
    if (lane < 0) lane = ends.push(0) - 1;
    ends[lane] = one.to;
    one.lane = lane;
  }
  return Math.max(ends.length, 1);
}

function ticks(from, to) {
  const steps = [60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600];
  const step = steps.find((s) => (to - from) / s <= 6) || 43200;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at < to; at += step) found.push(at);
  return found;
}

export function timeline(devices, pieces, from, to, width, open) {
  const narrow = width < 560;
  const left = narrow ? 62 : LEFT;
  const x = (t) => left + ((t - from) / (to - from)) * (width - left - 4);
  const plot = svg("svg", { class: "plot", role: "img", "aria-labelledby": "timeline-text" });
  let y = 4;
  for (const device of devices) {
    const mine = pieces.filter((p) => p.device === device.device).map((p) => ({ ...p, from: Math.max(p.from, from), to: Math.min(p.to, to) })).sort((a, b) => a.from - b.from || a.id - b.id);
    const rows = lanes(mine);
    plot.append(svg("line", { class: "axis", x1: 0, x2: width, y1: y - 2, y2: y - 2 }));
    const label = svg("text", { x: 0, y: y + 14 });
    const most = narrow ? 8 : 14;
    const name = shown(device.name);
    label.append(name.length > most ? `${name.slice(0, most - 1)}…` : name);
    plot.append(label);
    for (const one of mine) plot.append(piece(one, x, y, open));
    y += rows * ROW + 4;
  }
  for (const at of ticks(from, to)) {
    plot.prepend(svg("line", { class: "axis", x1: x(at), x2: x(at), y1: 2, y2: y }));
    if (x(at) < width - 18) plot.append(svg("text", { class: "tick", x: x(at), y: y + 13, "text-anchor": "middle" }, clock(at)));
  }
  plot.setAttribute("viewBox", `0 0 ${width} ${y + 20}`);
  return plot;
}

function piece(one, x, y, open) {
  const wide = Math.max(x(one.to) - x(one.from), 2);
  const top = y + one.lane * ROW;
  const group = svg("g", { class: "job" });
  group.append(svg("rect", { class: `piece f${one.id % 8}`, x: x(one.from), y: top, width: wide, height: ROW - 4, rx: 3 }));
  group.append(svg("title", {}, `${shown(one.name)} (${one.id}), ${clock(one.from)} to ${one.running ? "now" : clock(one.to)}`));
  const fits = Math.floor((wide - 8) / 7.2);
  const name = shown(one.name);
  if (fits >= 3) {
    const text = svg("text", { x: x(one.from) + 5, y: top + 13, "pointer-events": "none" });
    text.append(name.length > fits ? `${name.slice(0, fits - 1)}…` : name);
    group.append(text);
  }
  group.addEventListener("click", () => open(one.id));
  return group;
}

// Predicted across, measured up; the bar is the range that was foretold.
export function scatter(points, width) {
  const size = Math.min(width, 460);
  const edge = 40;
  const most = Math.max(1.1, ...points.flatMap((p) => [p.high, p.measured]).map((v) => Math.min(v, 1.6)));
  const at = (v) => (Math.min(Math.max(v, 0), most) / most) * (size - edge - 12);
  const x = (v) => edge + at(v);
  const y = (v) => size - edge - at(v);
  const plot = svg("svg", { class: "plot", role: "img", "aria-labelledby": "speeds-text", viewBox: `0 0 ${size} ${size}` });
  plot.style.maxWidth = `${size}px`;
  for (let v = 0; v <= most + 1e-9; v += 0.25) {
    plot.append(svg("line", { class: "axis", x1: x(v), x2: x(v), y1: y(0), y2: y(most) }));
    plot.append(svg("line", { class: "axis", x1: x(0), x2: x(most), y1: y(v), y2: y(v) }));
    plot.append(svg("text", { class: "tick", x: x(v), y: y(0) + 16, "text-anchor": "middle" }, percent(v)));
    if (v > 0) plot.append(svg("text", { class: "tick", x: x(0) - 5, y: y(v) + 4, "text-anchor": "end" }, percent(v)));
  }
  plot.append(svg("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(most), y2: y(most) }));
  plot.append(svg("text", { class: "tick", x: size / 2, y: size - 4, "text-anchor": "middle" }, "predicted speed"));
  plot.append(svg("text", { class: "tick", x: x(0), y: 10 }, "measured speed"));
  for (const p of points) {
    const good = inside(p);
    plot.append(svg("line", { class: "range", x1: x(p.low), x2: x(p.high), y1: y(p.measured), y2: y(p.measured) }));
    // A disc inside its range, a hollow square outside: not told by colour alone.
    const [cx, cy] = [x(p.mean), y(p.measured)];
    const mark = good ? svg("circle", { class: "in", cx, cy, r: 5 }) : svg("rect", { class: "out", x: cx - 5, y: cy - 5, width: 10, height: 10 });
    mark.append(svg("title", {}, `${shown(p.name)}: predicted ${percent(p.mean)}, measured ${percent(p.measured)}`));
    plot.append(mark);
  }
  return plot;
}

export const inside = (p) => p.measured >= p.low - 1e-9 && p.measured <= p.high + 1e-9;
