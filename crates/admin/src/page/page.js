// The status page: asks /status every two seconds and draws it. All texts go into the page as text, never as
// markup; some of them, such as paths, are what clients have sent.
"use strict";

const EVERY = 2000;
// Five minutes of the charts.
const SAMPLES = 150;
// A chart begins with room for one minute.
const FEWEST = 30;
// Hosts that are called most.
const MOST_HOSTS = 50;

const byId = (id) => document.getElementById(id);
const history = new Map();
let failures = 0;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function number(value) {
  return typeof value === "number" && isFinite(value) ? value : null;
}

function count(value) {
  return number(value) === null ? "–" : value.toLocaleString("en");
}

function rate(value) {
  if (number(value) === null) return "–";
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

function span(seconds) {
  if (number(seconds) === null) return "–";
  if (seconds === 0) return "0";
  if (seconds < 0.001) return Math.round(seconds * 1e6) + " µs";
  if (seconds < 1) return (seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0) + " ms";
  if (seconds < 120) return seconds.toFixed(1) + " s";
  if (seconds < 7200) return Math.round(seconds / 60) + " min";
  if (seconds < 172800) return (seconds / 3600).toFixed(1) + " h";
  return (seconds / 86400).toFixed(1) + " d";
}

function size(bytes) {
  if (number(bytes) === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return (unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)) + " " + units[unit];
}

function factsOf(pairs) {
  return pairs.map(([name, value]) => {
    const group = element("div");
    group.append(element("dt", name), element("dd", value));
    return group;
  });
}

// Gives `place` these children. Nodes that are there already are kept and only what differs is changed, so that the focus, what
// is selected and what is unfolded stay as they are.
function show(place, children) {
  children.forEach((child, index) => {
    const there = place.childNodes[index];
    if (!there) place.append(child);
    else if (!isAlike(there, child)) there.replaceWith(child);
    else if (there.nodeType === Node.TEXT_NODE) {
      if (there.data !== child.data && !isSelected(there)) there.data = child.data;
    } else {
      setAttributes(there, child);
      show(there, [...child.childNodes]);
    }
  });
  while (place.childNodes.length > children.length) place.lastChild.remove();
}

function isAlike(one, other) {
  return one.nodeName === other.nodeName && one.id === other.id;
}

// Text that somebody has selected, perhaps to copy it, does not change under their hands.
function isSelected(node) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && selection.containsNode(node, true);
}

function setAttributes(there, made) {
  for (const { name } of [...there.attributes]) {
    // Whether something is unfolded is the reader's to say.
    if (name !== "open" && !made.hasAttribute(name)) there.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    if (there.getAttribute(name) !== value) there.setAttribute(name, value);
  }
}

function row(cells, texts) {
  const made = element("tr");
  cells.forEach((cell, index) => {
    const isText = texts && texts.includes(index);
    made.append(index === 0 ? headed(cell) : element("td", cell, isText ? "text" : ""));
  });
  return made;
}

function headed(text) {
  const made = element("th", text);
  made.scope = "row";
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

// One or two lines over the last minutes; the scale begins at 0 and ends at the largest value.
function chart(title, shown, lines) {
  const figure = element("figure");
  const picture = document.createElementNS(SVG, "svg");
  const samples = Math.max(FEWEST, ...lines.map((line) => line.values.length));
  picture.setAttribute("viewBox", "0 0 " + (samples - 1) + " 100");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  const known = lines.flatMap((line) => line.values).filter((value) => number(value) !== null);
  const most = Math.max(0, ...known);
  const caption = element("figcaption", title + ": ");
  const words = [];
  for (const line of lines) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", line.className);
    let drawn = "";
    let pen = false;
    const from = samples - line.values.length;
    line.values.forEach((value, index) => {
      if (number(value) === null) {
        pen = false;
        return;
      }
      const y = most > 0 ? 97 - (value / most) * 92 : 97;
      drawn += (pen ? "L" : "M") + (from + index) + " " + y.toFixed(1);
      pen = true;
    });
    path.setAttribute("d", drawn);
    picture.append(path);
    const last = line.values[line.values.length - 1];
    const word = line.name + " " + shown(last);
    words.push(word);
    caption.append(element("span", word, "key-" + line.className));
  }
  caption.append(element("span", "max " + shown(most)));
  picture.setAttribute("aria-label", title + ": " + words.join(", ") + ", max " + shown(most));
  figure.append(caption, picture);
  return figure;
}

// What is kept of a pool for the charts.
function remember(pool) {
  const past = history.get(pool.name) || { samples: [], sum: null, count: null };
  history.set(pool.name, past);
  const queue = pool.times.queue;
  let wait = null;
  // A gateway that has just begun counts from 0.
  if (past.count !== null && queue.count > past.count) {
    wait = (queue.sum - past.sum) / (queue.count - past.count);
  }
  past.sum = queue.sum;
  past.count = queue.count;
  past.samples.push({
    finished: pool.rates.finished,
    refused: pool.rates.refused,
    waiting: pool.queue.waiting,
    busy: pool.workers.busy,
    wait,
    expected: pool.queue.expected_wait,
  });
  if (past.samples.length > SAMPLES) past.samples.shift();
  return past.samples;
}

function drawPool(pool) {
  const samples = remember(pool);
  const of = (key) => samples.map((sample) => sample[key]);
  const section = element("article", undefined, "pool");
  section.id = "pool-" + pool.name;
  const title = element("h2", pool.name + " ");
  const limit = pool.workers.limit < pool.workers.max ? ", now limited to " + pool.workers.limit : "";
  const what = pool.runtime + ", " + pool.state + ", " + pool.pm + ", at most " + pool.workers.max + " workers" + limit;
  title.append(element("small", what));
  const list = element("dl");
  const oldest = pool.running.oldest;
  list.append(...factsOf([
    ["busy", count(pool.workers.busy)],
    ["idle", count(pool.workers.idle)],
    ["starting", count(pool.workers.starting)],
    ["waiting", count(pool.queue.waiting) + " of " + count(pool.queue.max)],
    ["expected wait", span(pool.queue.expected_wait)],
    ["longest wait", pool.queue.waiting ? span(pool.queue.oldest_wait) : "–"],
    ["oldest running", oldest ? span(oldest.time) : "–"],
    ["refused", count(pool.requests.refused)],
    ["memory", pool.memory ? size(pool.memory.all) : "–"],
  ]));
  const charts = element("div", undefined, "charts");
  charts.append(
    chart("requests per second", rate, [
      { name: "answered", className: "first", values: of("finished") },
      { name: "refused", className: "second", values: of("refused") },
    ]),
    chart("requests", count, [
      { name: "waiting", className: "second", values: of("waiting") },
      { name: "running", className: "first", values: of("busy") },
    ]),
    chart("wait", span, [
      { name: "average", className: "first", values: of("wait") },
      { name: "expected", className: "second", values: of("expected") },
    ]),
  );
  section.append(title, list, charts);
  section.append(drawTimes(pool), drawRunning(pool), drawServers(pool), drawDetails(pool));
  return section;
}

function headRow(names) {
  const head = element("thead");
  const made = element("tr");
  for (const name of names) {
    const cell = element("th", name);
    cell.scope = "col";
    made.append(cell);
  }
  head.append(made);
  return head;
}

function drawTimes(pool) {
  const wide = element("div", undefined, "wide");
  const table = element("table");
  table.append(element("caption", "Times in the last minute, and since the start"));
  table.append(headRow(["", "p50", "p95", "p99", "p50 since start", "p95 since start", "p99 since start"]));
  const lately = pool.last_minute.times;
  const body = element("tbody");
  for (const [name, key] of [["waiting", "queue"], ["running", "service"], ["total", "total"]]) {
    const all = [lately[key], pool.times[key]].flatMap((times) => [times.p50, times.p95, times.p99]);
    body.append(row([name, ...all.map(span)]));
  }
  table.append(body);
  wide.append(table);
  return wide;
}

// Which scripts the workers run now.
function drawRunning(pool) {
  const wide = element("div", undefined, "wide");
  if (pool.running.scripts.length === 0) return wide;
  const table = element("table");
  table.append(element("caption", "Running now"));
  table.append(headRow(["script", "requests", "oldest"]));
  const body = element("tbody");
  for (const script of pool.running.scripts) {
    body.append(row([script.script, count(script.count), span(script.oldest)]));
  }
  table.append(body);
  wide.append(table);
  return wide;
}

function drawServers(pool) {
  const wide = element("div", undefined, "wide");
  if (!pool.servers || pool.servers.length === 0) return wide;
  const table = element("table");
  table.append(element("caption", "Servers"));
  for (const server of pool.servers) {
    table.append(row([server.name, server.state, count(server.busy) + " busy", count(server.failures) + " failures"]));
  }
  wide.append(table);
  return wide;
}

function drawDetails(pool) {
  const details = element("details");
  details.append(element("summary", "Workers and scaling decisions"));
  for (const decision of pool.decisions) {
    details.append(element("p", decision.time + " " + decision.what));
  }
  const wide = element("div", undefined, "wide");
  const table = element("table");
  table.append(element("caption", "Workers"));
  for (const worker of pool.processes) {
    const running = (worker.method || "") + " " + (worker.uri || "");
    table.append(row([worker.pid, worker.state, count(worker.requests), span(worker.time), running], [4]));
  }
  wide.append(table);
  details.append(wide);
  return details;
}

function drawEgress(egress) {
  byId("egress").hidden = !egress;
  if (!egress) return;
  const hosts = [...egress.hosts].sort((one, other) => other.calls - one.calls).slice(0, MOST_HOSTS);
  show(byId("hosts"), hosts.map((host) => {
    const made = host.connections;
    const connections = made ? count(made.idle + made.busy + made.connecting) : "–";
    const kept = host.reuse === null ? "–" : Math.round(host.reuse * 100) + " %";
    const [error, answered] = [host.last_error, host.last_server_error];
    const isAnswer = answered && (!error || answered.age < error.age);
    const said = isAnswer ? span(answered.age) + " ago: answered " + answered.status
      : error ? span(error.age) + " ago: " + error.reason + ": " + error.message : "–";
    return row([
      host.name, count(host.calls), count(host.failed), count(host.server_errors), count(host.at_work), count(host.waiting), connections, kept,
      span(host.times.total.p50), span(host.times.total.p99), (host.breaker || "–").replace("_", " "), said,
    ], [10, 11]);
  }));
}

function draw(status) {
  const state = byId("state");
  const ready = status.ready ? "ready" : "not ready: " + status.not_ready;
  const troubles = status.troubles || [];
  const number = troubles.length === 1 ? "1 problem" : troubles.length + " problems";
  const text = status.state + ", " + ready + (troubles.length ? ", " + number : "");
  // Said again only when it has changed.
  if (state.textContent !== text) state.textContent = text;
  state.className = status.ready ? (troubles.length ? "warn" : "") : "bad";
  document.title = (troubles.length ? number + " – " : "") + "weir";
  byId("version").textContent = status.version;
  byId("main").hidden = false;
  byId("login").hidden = true;
  show(byId("troubles"), troubles.map((trouble) => {
    const made = element("div", undefined, "trouble");
    made.append(element("p", trouble.what), element("p", trouble.help));
    return made;
  }));
  const sum = (key) => status.sites.reduce((all, site) => all + (site.rates[key] || 0), 0);
  const own = status.processes;
  show(byId("facts"), factsOf([
    ["requests per second", rate(sum("requests"))],
    ["failures per second", rate(sum("failures"))],
    ["connections", count(status.connections.now) + " of " + count(status.connections.max)],
    ["idle connections", count(status.connections.idle)],
    ["reactors", count(status.reactors.running) + (status.reactors.elastic ? " of at most " + count(status.reactors.most) : "")],
    ["temporary files", size(status.spool.bytes) + " of " + size(status.spool.max)],
    ["gateway memory", own ? size(own.gateway.memory) : "–"],
    ["rejected by kernel", count(status.kernel.overflows)],
    ["uptime", span(status.uptime)],
  ]));
  const names = new Set(status.pools.map((pool) => pool.name));
  for (const name of [...history.keys()]) if (!names.has(name)) history.delete(name);
  show(byId("pools"), status.pools.map(drawPool));
  show(byId("sites"), status.sites.map((site) => {
    const lately = site.last_minute.times.total;
    return row([
      site.name, count(site.requests), rate(site.rates.requests), count(site.statuses["4xx"]),
      count(site.statuses["5xx"]), span(lately.p50), span(lately.p95),
    ]);
  }));
  drawEgress(status.egress);
  show(byId("listeners"), status.listeners.map((listener) => {
    const queue = listener.queue || {};
    const length = listener.queue ? count(queue.length) + " of " + count(queue.limit) : "–";
    return row([listener.name, listener.address, count(listener.accepted), length, count(queue.most)], [1]);
  }));
  document.documentElement.dataset.drawn = "yes";
}

function stale(text) {
  const state = byId("state");
  if (state.textContent !== text) state.textContent = text;
  state.className = "bad";
}

async function ask() {
  const headers = {};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = "Bearer " + token;
  try {
    const answer = await fetch("status", { headers, cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (answer.status === 401) {
      sessionStorage.removeItem("token");
      byId("login").hidden = false;
      byId("main").hidden = true;
      stale(token ? "wrong token" : "enter the token");
      return;
    }
    if (!answer.ok) {
      stale((await answer.text()).trim());
    } else {
      draw(await answer.json());
      failures = 0;
    }
  } catch (error) {
    failures += 1;
    stale("no answer from weir, these values are old (" + failures + " tries)");
  }
  setTimeout(ask, document.hidden ? 5 * EVERY : EVERY);
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", byId("token").value.trim());
  byId("token").value = "";
  ask();
});

ask();
