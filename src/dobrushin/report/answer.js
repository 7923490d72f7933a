// The table of estimates, page by page, and the chart of the rows that it shows.

const PAGE = 50;
// Width of a letter of the charts, in pixels, at most.
const LETTER = 7.6;
const rows = data.rows;
const order = { column: null, down: false, first: 0, kept: [], text: "" };

const columns = [
  ["target", (k) => rows.names[rows.target[k]], (k) => rows.names[rows.target[k]]],
  ["state", (k) => rows.state[k], (k) => rows.state[k]],
  [rows.value_name, (k) => rows.value[k], (k) => rows.value[k].toFixed(rows.decimals)],
  ["lower", (k) => rows.lower[k], (k) => rows.lower[k].toFixed(rows.decimals)],
  ["upper", (k) => rows.upper[k], (k) => rows.upper[k].toFixed(rows.decimals)],
  ["bias bound", (k) => (rows.bias[k] === null ? Infinity : rows.bias[k]), biasText],
];

function biasText(k) {
  return rows.bias[k] === null ? "unknown" : String(Number(rows.bias[k].toPrecision(2)));
}

function rowName(k) {
  const name = rows.names[rows.target[k]];
  return rows.state[k] === "" ? name : `${name} = ${rows.state[k]}`;
}

// Cut before the state, which tells rows of one target apart.
function shortName(k, letters) {
  const [name, tail] = [rows.names[rows.target[k]], rowName(k).slice(rows.names[rows.target[k]].length)];
  const room = Math.max(3, letters - tail.length);
  return (name.length > room ? `${name.slice(0, room - 1)}\u2026` : name) + tail;
}

const collator = new Intl.Collator("en", { numeric: true });

function compare(a, b) {
  return typeof a === "string" ? collator.compare(a, b) : a - b;
}

function arrange() {
  const wanted = order.text.trim().toLowerCase();
  order.kept = [];
  for (let k = 0; k < rows.target.length; k += 1) {
    if (!wanted || rowName(k).toLowerCase().includes(wanted)) order.kept.push(k);
  }
  if (order.column !== null) {
    const keys = new Map(order.kept.map((k) => [k, columns[order.column][1](k)]));
    const way = order.down ? -1 : 1;
    order.kept.sort((a, b) => way * compare(keys.get(a), keys.get(b)) || a - b);
  }
  order.first = 0;
  showRows();
}

function showRows() {
  const shown = order.kept.slice(order.first, order.first + PAGE);
  byId("body").replaceChildren(
    ...shown.map((k) => {
      const line = element("tr");
      columns.forEach(([label, , text], c) => {
        const cell = element("td");
        cell.dataset.label = label;
        cell.append(c ? text(k) : element("bdi", text(k)));
        line.append(cell);
      });
      return line;
    }),
  );
  const total = order.kept.length;
  const last = order.first + shown.length;
  byId("shown").textContent = total
    ? `Rows ${whole(order.first + 1)} to ${whole(last)} of ${whole(total)}`
    : "No row has this in its name.";
  byId("before").disabled = order.first === 0;
  byId("after").disabled = last >= total;
  drawChart(shown);
}

function drawChart(shown) {
  const chart = byId("chart");
  const width = Math.max(240, chart.parentElement.clientWidth);
  // Names that have no room beside their bars stand above them, whole.
  const beside = Math.min(170, Math.round(width * 0.3));
  const isBeside = shown.every((k) => rowName(k).length <= Math.floor((beside - 10) / LETTER));
  const left = isBeside ? beside : 14;
  const right = width - 24;
  const line = isBeside ? 20 : 36;
  const bottom = 8 + line * shown.length;
  let low = Math.min(...shown.map((k) => rows.lower[k]));
  let high = Math.max(...shown.map((k) => rows.upper[k]));
  if (rows.probabilities && byId("whole").checked) [low, high] = [0, 1];
  const room = Math.max((high - low) * 0.04, 1e-12 * Math.max(1, Math.abs(high)));
  if (!(rows.probabilities && byId("whole").checked)) [low, high] = [low - room, high + room];
  const x = (value) => left + ((value - low) / (high - low)) * (right - left);
  chart.replaceChildren();
  chart.setAttribute("viewBox", `0 0 ${width} ${bottom + 24}`);
  chart.style.height = `${bottom + 24}px`;
  if (!shown.length) return;
  for (const [value, text] of marks(low, high, Math.max(2, (right - left) / 90))) {
    chart.append(shape("line", { class: "grid", x1: x(value), x2: x(value), y1: 4, y2: bottom }));
    const half = (text.length * LETTER) / 2;
    const at = Math.min(width - half, Math.max(half, x(value)));
    chart.append(shape("text", { x: at, y: bottom + 16, "text-anchor": "middle" }, text));
  }
  const open = data.verdict.level === "bad" ? " open" : "";
  const letters = Math.floor((isBeside ? left - 10 : width - 10) / LETTER);
  shown.forEach((k, row) => {
    const y = 8 + line * (row + 1) - 10;
    const name = rowName(k);
    const short = shortName(k, letters);
    const place = isBeside ? { x: left - 10, y: y + 4, "text-anchor": "end" } : { x: 2, y: y - 10 };
    const label = shape("text", { class: "name", ...place }, short);
    const ends = [rows.lower[k], rows.upper[k]];
    const wide = Math.max(0, 2 - (x(ends[1]) - x(ends[0]))) / 2;
    const bar = shape("line", { class: `bar${open}`, x1: x(ends[0]) - wide, x2: x(ends[1]) + wide, y1: y, y2: y });
    const point = shape("circle", { class: "value", cx: x(rows.value[k]), cy: y, r: 3 });
    const words = `${name}: ${columns[2][2](k)}, from ${columns[3][2](k)} to ${columns[4][2](k)}`;
    for (const part of [label, bar, point]) part.append(shape("title", {}, words));
    chart.append(bar, point, label);
  });
}

function startAnswer() {
  columns.forEach(([name], c) => {
    const head = element("th");
    head.scope = "col";
    const button = element("button", name);
    button.type = "button";
    button.addEventListener("click", () => {
      order.down = order.column === c ? !order.down : false;
      order.column = c;
      for (const other of byId("heads").children) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      arrange();
    });
    head.append(button);
    byId("heads").append(head);
  });
  byId("filter").addEventListener("input", (event) => {
    order.text = event.target.value;
    arrange();
  });
  for (const [id, way] of [["before", -PAGE], ["after", PAGE]]) {
    byId(id).addEventListener("click", () => {
      order.first = Math.max(0, order.first + way);
      showRows();
    });
  }
  byId("whole").parentElement.hidden = !rows.probabilities;
  byId("whole").addEventListener("change", showRows);
  const certain = data.verdict.level === "bad" ? "Bars cover chance only; the bias is unknown." : "Bars are the intervals.";
  byId("chart-caption").textContent = `${certain} Dots are the estimates.`;
  const notes = ["Limits are rounded outwards, bias bounds upwards."];
  if (data.certificate.bias) notes.push(`The bias bound is a ${data.certificate.bias}.`);
  if (rows.total > rows.target.length) {
    notes.push(`These are the first ${whole(rows.target.length)} of ${whole(rows.total)} rows: the estimate has all of them.`);
  }
  byId("rows-note").textContent = notes.join(" ");
  arrange();
  drawings.push(showRows);
}

startAnswer();
