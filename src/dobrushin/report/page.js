// Data of the page, ways to put text into it, and the sections that are only text.
// Names come from files of strangers: they go in as text, never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = document.querySelector("svg").namespaceURI;

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function shape(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function rgb(name) {
  const text = colour(name);
  return [1, 3, 5].map((k) => parseInt(text.slice(k, k + 2), 16));
}

function bytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function whole(number) {
  return number.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

// Numbers at which an axis from low to high has its marks.
function marks(low, high, most) {
  const rough = (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((size) => size >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9) + 0; k * step <= high + 1e-9 * step; k += 1) found.push(k * step + 0);
  const decimals = Math.min(12, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return found.map((value) => [value, value.toFixed(decimals)]);
}

function facts(list, pairs) {
  for (const [key, value] of pairs) {
    const cell = element("dd");
    cell.append(...(Array.isArray(value) ? value : [element("bdi", value)]));
    list.append(element("dt", key), cell);
  }
}

// Many names, each kept apart from its neighbours whatever it holds.
function names(list, count) {
  const parts = [];
  list.forEach((name, k) => parts.push(...(k ? [", "] : []), element("bdi", name)));
  if (count > list.length) parts.push(` and ${whole(count - list.length)} more`);
  return parts;
}

function showText() {
  byId("verdict").classList.add(data.verdict.level);
  byId("headline").textContent = data.verdict.headline;
  byId("verdict-text").textContent = data.verdict.text;
  const asked = data.asked;
  const question = [[asked.count > 1 ? `${whole(asked.count)} targets` : "Target", names(asked.targets, asked.count)]];
  if (asked.model) question.unshift(["Model", asked.model]);
  if (asked.evidence_count) question.push(["Observed", names(asked.evidence, asked.evidence_count)]);
  question.push(["Tolerance", asked.tolerance], ["Confidence", asked.confidence]);
  facts(byId("asked-facts"), question);
  for (const words of data.certificate.words) byId("words").append(element("p", words));
  facts(byId("facts"), data.certificate.facts);
  for (const words of data.certificate.assumptions) byId("assumptions").append(element("li", words));
  facts(byId("diagnosis"), data.diagnosis.lines);
  byId("diagnosis-note").textContent = data.diagnosis.note;
  if (!data.diagnosis.lines.length) leaveOut("model");
  if (!data.certificate.assumptions.length) byId("assumptions-heading").hidden = true;
  byId("command").textContent = data.reproduce.command;
  facts(byId("versions"), data.reproduce.facts);
}

// A section that has nothing to show, and the way to it.
function leaveOut(id) {
  byId(id).hidden = true;
  for (const link of document.querySelectorAll("nav a")) if (link.hash === `#${id}`) link.remove();
}

// Whatever is drawn is drawn again when the page gets another width or other colours.
const drawings = [];
let drawnWidth = 0;

function redraw() {
  drawnWidth = byId("page").clientWidth;
  for (const drawing of drawings) drawing();
}

byId("page").hidden = false;
showText();
addEventListener("resize", () => {
  if (byId("page").clientWidth !== drawnWidth) redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
