// The bound against the number of steps; a mark follows the moment of the scan.

const curve = data.curve;
let curveMoment = null;

function boundAt(step) {
  let k = curve.steps.length - 1;
  while (k > 0 && curve.steps[k] > step) k -= 1;
  return curve.values[k];
}

function drawCurve() {
  const picture = byId("curve");
  const width = Math.max(240, picture.parentElement.clientWidth);
  const height = Math.min(320, Math.round(width * 0.6));
  const [left, right, top, bottom] = [52, width - 26, 10, height - 40];
  const last = curve.steps[curve.steps.length - 1];
  const seen = curve.values.filter((value) => value > 0);
  const floor = Math.max(1e-16, Math.min(...seen, 0.5));
  const decades = Math.max(1, Math.ceil(-Math.log10(floor) - 1e-9));
  const x = (step) => left + (step / last) * (right - left);
  const y = (value) => top + Math.min(1, -Math.log10(Math.max(value, 1e-300)) / decades) * (bottom - top);
  picture.replaceChildren();
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.style.height = `${height}px`;
  const every = Math.ceil(decades / 6);
  for (let k = 0; k <= decades; k += every) {
    const at = y(10 ** -k);
    picture.append(shape("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }));
    const text = k <= 3 ? String(Number((10 ** -k).toFixed(k))) : `1e-${k}`;
    picture.append(shape("text", { x: left - 8, y: at + 4, "text-anchor": "end" }, text));
  }
  for (const [value] of marks(0, last, Math.max(2, (right - left) / 110))) {
    if (value % 1) continue;
    picture.append(shape("line", { class: "grid", x1: x(value), x2: x(value), y1: top, y2: bottom }));
    picture.append(shape("text", { x: x(value), y: bottom + 18, "text-anchor": "middle" }, whole(value)));
  }
  picture.append(shape("text", { x: right, y: height - 4, "text-anchor": "end" }, "steps"));
  const points = curve.steps.map((step, k) => `${x(step).toFixed(1)},${y(curve.values[k]).toFixed(1)}`);
  picture.append(shape("polyline", { class: "curve", points: points.join(" ") }));
  const now = shape("line", { class: "now", y1: top, y2: bottom });
  const dot = shape("circle", { class: "dot", r: 4.5 });
  picture.append(now, dot);
  curveMoment = (step) => {
    for (const end of ["x1", "x2"]) now.setAttribute(end, x(step));
    dot.setAttribute("cx", x(step));
    dot.setAttribute("cy", y(boundAt(step)));
  };
  curveMoment(last);
}

function startCurve() {
  if (!curve) {
    leaveOut("bound");
    return;
  }
  byId("curve-words").textContent = curve.words;
  byId("curve-figure").hidden = false;
  const reached = [];
  for (const level of [0.1, 0.01, 0.001]) {
    const k = curve.values.findIndex((value) => value <= level);
    if (k > 0) reached.push(`${level} after ${whole(curve.steps[k])}`);
  }
  const end = curve.values.length - 1;
  const words = reached.length ? `At most ${reached.join(", ")} steps. ` : "";
  byId("curve-caption").textContent = `${words}At the end, after ${whole(curve.steps[end])} steps: ${curve.values[end]}.`;
  drawCurve();
  drawings.push(drawCurve);
}

startCurve();
