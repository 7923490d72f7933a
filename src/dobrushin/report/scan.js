// The scan as a moving picture: a map of the grid, and the distance of the updates from the targets.

const scan = data.scan;
const player = { frame: 0, playing: false, started: 0, from: 0 };

// ---- the map -------------------------------------------------------------------------------------------------------

const map = scan && scan.grid;
let mapPoints = null;
let mapFirst = null;
let mapTrail = 1;

function readMap() {
  const raw = bytes(map.points);
  mapPoints = new Uint16Array(raw.length / 2);
  for (let k = 0; k < mapPoints.length; k += 1) mapPoints[k] = raw[2 * k] | (raw[2 * k + 1] << 8);
  mapFirst = new Int32Array(map.rows * map.columns).fill(scan.points);
  for (let k = mapPoints.length - 1; k >= 0; k -= 1) mapFirst[mapPoints[k]] = k;
  // So many updates glow: few enough to see where the scan is, and at least those of two moments.
  const cells = mapFirst.filter((first) => first < scan.points).length;
  mapTrail = Math.ceil(Math.max(Math.min(scan.points * 0.12, cells / 3), (2 * scan.points) / scan.frames));
}

function pointsUntil(frame) {
  return Math.floor((frame * scan.points) / scan.frames);
}

function drawMap() {
  const canvas = byId("map");
  const density = Math.min(3, devicePixelRatio || 1);
  const room = Math.min(byId("map-figure").clientWidth, 440) * density;
  const cell = Math.max(1, Math.min(Math.floor(room / map.columns), Math.floor((440 * density) / map.rows)));
  canvas.width = cell * map.columns;
  canvas.height = cell * map.rows;
  canvas.style.width = `${canvas.width / density}px`;
  const [rest, visited, warm, hot, observed] = ["rest", "visited", "warm", "hot", "observed"].map(rgb);
  const done = pointsUntil(player.frame);
  const image = new ImageData(map.columns, map.rows);
  const paint = (k, from, to, share) => {
    for (let c = 0; c < 3; c += 1) image.data[4 * k + c] = from[c] + (to[c] - from[c]) * share;
    image.data[4 * k + 3] = 255;
  };
  for (let k = 0; k < mapFirst.length; k += 1) paint(k, mapFirst[k] < done ? visited : rest, rest, 0);
  for (let k = Math.max(0, done - mapTrail); k < done; k += 1) {
    paint(mapPoints[k], warm, hot, 1 - (done - 1 - k) / mapTrail);
  }
  for (const k of map.observed) paint(k, observed, observed, 0);
  const small = document.createElement("canvas");
  small.width = map.columns;
  small.height = map.rows;
  small.getContext("2d").putImageData(image, 0, 0);
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, canvas.width, canvas.height);
  pen.strokeStyle = colour("soft");
  pen.lineWidth = density;
  pen.setLineDash([4 * density, 3 * density]);
  pen.beginPath();
  for (const k of map.row_cuts) {
    pen.moveTo(0, k * cell);
    pen.lineTo(canvas.width, k * cell);
  }
  for (const k of map.column_cuts) {
    pen.moveTo(k * cell, 0);
    pen.lineTo(k * cell, canvas.height);
  }
  pen.stroke();
  pen.setLineDash([]);
  if (map.targets.length < mapFirst.length / 4) {
    const thick = Math.max(1.5, Math.min(3, cell / 4)) * (cell < 6 ? 1 : density);
    const out = Math.max(0, (7 * density - cell) / 2);
    pen.strokeStyle = colour("target");
    pen.lineWidth = thick;
    for (const k of map.targets) {
      const [x, y] = [(k % map.columns) * cell, Math.floor(k / map.columns) * cell];
      pen.strokeRect(x - out + thick / 2, y - out + thick / 2, cell + 2 * out - thick, cell + 2 * out - thick);
    }
  }
  canvas.dataset.frame = player.frame;
}

// ---- distance against time ---------------------------------------------------------------------------------------

const bands = scan && scan.bands;
let bandShare = null;

function bandOf(level) {
  const size = (bands.top + 1) / bands.bands;
  return [Math.ceil(level * size), Math.ceil((level + 1) * size) - 1];
}

function drawBands() {
  const canvas = byId("bands");
  const density = Math.min(3, devicePixelRatio || 1);
  const width = Math.floor(byId("bands-figure").clientWidth);
  const height = Math.max(140, Math.min(300, Math.round(width * 0.65)));
  canvas.width = width * density;
  canvas.height = height * density;
  canvas.style.width = `${width}px`;
  const pen = canvas.getContext("2d");
  pen.scale(density, density);
  const [left, right, top, bottom] = [46, width - 6, 6, height - 24];
  const [rest, visited, hot] = ["rest", "visited", "hot"].map(rgb);
  const image = new ImageData(bands.moments, bands.bands);
  const now = (player.frame / scan.frames) * bands.moments;
  for (let m = 0; m < bands.moments; m += 1) {
    for (let b = 0; b < bands.bands; b += 1) {
      const share = Math.sqrt(bandShare[m * bands.bands + b] / 255);
      const end = m < now ? hot : visited;
      const place = 4 * ((bands.bands - 1 - b) * bands.moments + m);
      const strength = share ? 0.25 + 0.75 * share : 0;
      for (let c = 0; c < 3; c += 1) image.data[place + c] = rest[c] + (end[c] - rest[c]) * strength;
      image.data[place + 3] = 255;
    }
  }
  const small = document.createElement("canvas");
  small.width = bands.moments;
  small.height = bands.bands;
  small.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, left, top, right - left, bottom - top);
  pen.fillStyle = colour("soft");
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  const line = (bottom - top) / bands.bands;
  const every = Math.max(1, Math.ceil(24 / line));
  for (let b = 0; b < bands.bands; b += every) {
    const unreached = bands.unreached && b === bands.bands - 1;
    pen.fillText(unreached ? "none" : whole(bandOf(b)[0]), left - 6, bottom - line * (b + 0.5));
  }
  pen.textBaseline = "top";
  pen.textAlign = "left";
  pen.fillText("0", left, bottom + 6);
  pen.textAlign = "right";
  pen.fillText(`${whole(scan.steps)} steps`, right, bottom + 6);
  const x = left + (player.frame / scan.frames) * (right - left);
  pen.strokeStyle = colour("ink");
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x, top);
  pen.lineTo(x, bottom);
  pen.stroke();
  canvas.dataset.frame = player.frame;
}

// ---- the slider ---------------------------------------------------------------------------------------------------

function show(frame) {
  player.frame = frame;
  const step = Math.floor((frame * scan.steps) / scan.frames);
  const words = `step ${whole(step)} of ${whole(scan.steps)}`;
  byId("time").value = frame;
  byId("time").setAttribute("aria-valuetext", words);
  byId("moment").textContent = words;
  if (map) drawMap();
  drawBands();
  if (curveMoment) curveMoment(step);
}

function stop() {
  player.playing = false;
  byId("play").textContent = "Play";
  byId("play").setAttribute("aria-pressed", "false");
}

function tick(time) {
  if (!player.playing) return;
  if (!player.started) player.started = time;
  const whole_scan = 1000 * Math.min(12, Math.max(2, scan.frames * 0.12));
  const frame = Math.floor(player.from + ((time - player.started) / whole_scan) * scan.frames);
  show(Math.min(frame, scan.frames));
  if (player.frame >= scan.frames) stop();
  else requestAnimationFrame(tick);
}

function play() {
  if (player.playing) {
    stop();
    return;
  }
  player.playing = true;
  player.started = 0;
  player.from = player.frame >= scan.frames ? 0 : player.frame;
  byId("play").textContent = "Pause";
  byId("play").setAttribute("aria-pressed", "true");
  requestAnimationFrame(tick);
}

function scanWords() {
  const words = [];
  const of = scan.variables === null ? "" : ` of ${whole(scan.variables)}`;
  words.push(`The scan makes ${whole(scan.steps)} updates, of ${whole(scan.updated)}${of} variables.`);
  if (scan.random) words.push("Its steps are drawn at random: the picture shows one draw.");
  if (scan.points < scan.steps) words.push(`The picture shows ${whole(scan.points)} of the updates, evenly spread.`);
  return words.join(" ");
}

function startScan() {
  if (!scan) {
    leaveOut("scan");
    return;
  }
  byId("scan-words").textContent = scanWords();
  byId("scan-figure").hidden = false;
  bandShare = bytes(bands.share);
  if (map) {
    byId("map-figure").hidden = false;
    readMap();
    const size = map.size > 1 ? ` A cell is ${map.size} x ${map.size} variables.` : "";
    const cuts = map.row_cuts.length + map.column_cuts.length ? " Dashed lines: parts without updates are cut out." : "";
    const part = map.part.some((lines, k) => lines < map.whole[k]);
    const where = part ? `${map.part.map(whole).join(" x ")} of it, where the scan goes` : "all of it";
    byId("map-words").textContent = `The ${map.whole.map(whole).join(" x ")} grid: ${where}.${size}${cuts}`;
    byId("observed-key").hidden = !map.observed.length;
    byId("map").setAttribute("aria-label", "Map of the variables that were updated up to this moment");
  }
  const far = bands.kind === "distance";
  byId("bands-words").textContent = far
    ? "How far from the nearest target (upwards, in links of the model) the updates are, against time."
    : "Which variables (upwards, by position) are updated, against time.";
  byId("bands").setAttribute("aria-label", byId("bands-words").textContent);
  byId("time").max = scan.frames;
  byId("time").addEventListener("input", (event) => {
    stop();
    show(Number(event.target.value));
  });
  byId("play").addEventListener("click", play);
  show(Math.round(scan.frames * 0.5));
  drawings.push(() => show(player.frame));
}

startScan();
drawnWidth = byId("page").clientWidth;
