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
// More pools than this are a table, and one of them is shown whole.
const FEW_POOLS = 3;
// Rows of a table and problems that are shown before somebody asks for all.
const FEW_ROWS = 25;
const FEW_TROUBLES = 8;

const byId = (id) => document.getElementById(id);
const history = new Map();
// What is shown of the tables: the column that sorts, what is searched for, and whether all rows are.
const views = {
  pools: { key: "trouble", down: true, search: "", all: false },
  sites: { key: "rate", down: true, search: "", all: false },
};
let allTroubles = false;
let failures = 0;
let last = null;

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
}

function percent(share) {
  return number(share) === null ? "–" : Math.round(share * 100) + " %";
}

function drawPool(pool) {
  const samples = history.get(pool.name).samples;
  const of = (key) => samples.map((sample) => sample[key]);
  const section = element("article", undefined, "pool");
  section.id = "pool-" + pool.name;
  const title = element("h2", pool.name + " ");
  const limit = pool.workers.limit < pool.workers.max ? ", now limited to " + pool.workers.limit : "";
  const what = pool.runtime + ", " + pool.state + ", " + pool.pm + ", at most " + pool.workers.max + " workers" + limit;
  title.append(element("small", what));
  const list = element("dl");
  const oldest = pool.running.oldest;
  const work = pool.work || { slow_at: [], calls: [] };
  list.append(...factsOf([
    ["busy", count(pool.workers.busy)],
    ["idle", count(pool.workers.idle)],
    ["starting", count(pool.workers.starting)],
    ["waiting", count(pool.queue.waiting) + " of " + count(pool.queue.max)],
    ["expected wait", span(pool.queue.expected_wait)],
    ["longest wait", pool.queue.waiting ? span(pool.queue.oldest_wait) : "–"],
    ["oldest running", oldest ? span(oldest.time) : "–"],
    ["computing", percent(work.computing)],
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
  section.append(
    drawTimes(pool),
    drawTable("Running now", ["script", "requests", "oldest"],
      pool.running.scripts.map((script) => [script.script, count(script.count), span(script.oldest)])),
    drawTable("Slow scripts are in", ["function", "scripts", "position"],
      work.slow_at.map((place) => [place.function + "()", count(place.count), place.at]), [2]),
    drawTable("Calls that run", ["host", "calls"], work.calls.map((call) => [call.host, count(call.count)])),
    drawTable("Servers", ["server", "state", "busy", "failures"], (pool.servers || []).map((server) =>
      [server.name, server.state, count(server.busy), count(server.failures)])),
    drawDetails(pool),
  );
  return section;
}

function headRow(names, texts) {
  const head = element("thead");
  const made = element("tr");
  names.forEach((name, index) => {
    const cell = element("th", name, texts && texts.includes(index) ? "text" : "");
    cell.scope = "col";
    made.append(cell);
  });
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

// A table with these columns; nothing without rows.
function drawTable(caption, columns, rows, texts) {
  const wide = element("div", undefined, "wide");
  if (rows.length === 0) return wide;
  const table = element("table");
  table.append(element("caption", caption), headRow(columns, texts));
  const body = element("tbody");
  body.append(...rows.map((cells) => row(cells, texts)));
  table.append(body);
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

function drawPrograms(programs) {
  byId("programs").hidden = !programs || programs.length === 0;
  show(byId("programs-body"), (programs || []).map((program) => {
    const end = program.last_end;
    const runs = program.processes.map((process) => process.time);
    return row([
      program.name, program.state, runs.length ? span(Math.max(...runs)) : "–", program.schedule || "always",
      program.schedule ? span(program.next_in) : "–", count(program.started), count(program.failed), count(program.skipped),
      end ? span(end.ago) + " ago: " + end.how : "–",
    ], [1, 3, 8]);
  }));
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

// How much of a limit is used, as a bar.
function bar(used, limit) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("class", "bar");
  picture.setAttribute("viewBox", "0 0 100 10");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("aria-hidden", "true");
  const part = document.createElementNS(SVG, "rect");
  const share = limit > 0 ? Math.min(1, used / limit) : 0;
  part.setAttribute("width", (share * 100).toFixed(1));
  part.setAttribute("height", "10");
  part.setAttribute("class", share >= 1 ? "full" : "");
  picture.append(part);
  return picture;
}

// The columns of a long table: a name, what sorts it, and how it is shown.
const COLUMNS = {
  pools: [
    { key: "name", name: "pool", of: (pool) => pool.name },
    { key: "trouble", name: "state", of: (pool) => -levelOf(pool), show: stateOf },
    { key: "busy", name: "busy", of: (pool) => pool.workers.busy, show: (pool) => {
      const shown = element("span", count(pool.workers.busy) + " of " + count(pool.workers.max));
      const made = element("span", undefined, "used");
      made.append(shown, bar(pool.workers.busy, pool.workers.max));
      return made;
    } },
    { key: "waiting", name: "waiting", of: (pool) => pool.queue.waiting, show: (pool) => count(pool.queue.waiting) },
    { key: "rate", name: "per second", of: (pool) => pool.rates.finished, show: (pool) => rate(pool.rates.finished) },
    { key: "refused", name: "refused", of: (pool) => pool.rates.refused, show: (pool) => rate(pool.rates.refused) },
    { key: "p95", name: "p95 (1 min)", of: (pool) => pool.last_minute.times.total.p95, show: (pool) => span(pool.last_minute.times.total.p95), more: true },
    { key: "computing", name: "computing", of: (pool) => pool.work.computing, show: (pool) => percent(pool.work.computing), more: true },
    { key: "memory", name: "memory", of: (pool) => pool.memory && pool.memory.all, show: (pool) => pool.memory ? size(pool.memory.all) : "–", more: true },
  ],
  sites: [
    { key: "name", name: "site", of: (site) => site.name },
    { key: "requests", name: "requests", of: (site) => site.requests, show: (site) => count(site.requests) },
    { key: "rate", name: "per second", of: (site) => site.rates.requests, show: (site) => rate(site.rates.requests) },
    { key: "cache", name: "from cache", of: cachedShare, show: (site) => percent(cachedShare(site)), only: () => cached !== null },
    { key: "4xx", name: "4xx", of: (site) => site.statuses["4xx"], show: (site) => count(site.statuses["4xx"]) },
    { key: "5xx", name: "5xx", of: (site) => site.statuses["5xx"], show: (site) => count(site.statuses["5xx"]) },
    { key: "p50", name: "p50 (1 min)", of: (site) => site.last_minute.times.total.p50, show: (site) => span(site.last_minute.times.total.p50), more: true },
    { key: "p95", name: "p95 (1 min)", of: (site) => site.last_minute.times.total.p95, show: (site) => span(site.last_minute.times.total.p95), more: true },
  ],
};

const LEVELS = ["critical", "warning", "notice"];
let levels = new Map();
// What the cache did, by site; null: no site has a cache.
let cached = null;

// The share of a site's requests that needed no worker, of those that the cache was asked for.
function cachedShare(site) {
  const counts = cached && cached[site.name];
  if (!counts) return null;
  const served = counts.hit + counts.joined + counts.validated + counts.stale;
  const all = served + counts.expired + counts.miss;
  return all > 0 ? served / all : null;
}

// 0 is the worst.
function levelOf(pool) {
  const level = levels.get(pool.name);
  return level === undefined ? LEVELS.length : level;
}

function stateOf(pool) {
  const level = levelOf(pool);
  const idle = pool.workers.busy + pool.workers.idle + pool.workers.starting === 0 && pool.runtime !== "servers";
  const word = pool.state === "down" ? "down" : level < LEVELS.length ? LEVELS[level] : idle ? "at rest" : "fine";
  return element("span", word, "level " + (LEVELS[level] || "fine"));
}

function compare(one, other) {
  const [a, b] = [one, other].map((value) => value === null || value === undefined ? -Infinity : value);
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
}

// A table that sorts and searches. `of`: "pools" or "sites".
function drawLong(of, list, linkOf) {
  const view = views[of];
  const columns = COLUMNS[of].filter((column) => !column.only || column.only());
  const by = columns.find((column) => column.key === view.key) || columns[0];
  const search = view.search.toLowerCase();
  const found = list.filter((one) => one.name.toLowerCase().includes(search));
  const sign = view.down ? -1 : 1;
  // Equal ones: the busier ones first, then by name.
  found.sort((one, other) => sign * compare(by.of(one), by.of(other))
    || other.rates[of === "pools" ? "finished" : "requests"] - one.rates[of === "pools" ? "finished" : "requests"]
    || compare(one.name, other.name));
  const shown = view.all ? found : found.slice(0, FEW_ROWS);
  const heads = element("tr");
  for (const column of columns) {
    const cell = element("th", undefined, column.more ? "more" : "");
    cell.scope = "col";
    if (column.key === view.key) cell.setAttribute("aria-sort", view.down ? "descending" : "ascending");
    const button = element("button", column.name);
    button.type = "button";
    button.dataset.table = of;
    button.dataset.key = column.key;
    cell.append(button);
    heads.append(cell);
  }
  show(byId(of + "-head"), [heads]);
  show(byId(of + "-body"), shown.map((one) => {
    const made = element("tr");
    columns.forEach((column, index) => {
      const cell = element(index === 0 ? "th" : "td", undefined, column.more ? "more" : "");
      if (index === 0) cell.scope = "row";
      const content = index === 0 && linkOf ? linkOf(one) : column.show ? column.show(one) : column.of(one);
      cell.append(content);
      made.append(cell);
    });
    if (linkOf && "pool-" + one.name === chosen()) made.className = "chosen";
    return made;
  }));
  byId(of + "-search").hidden = list.length <= FEW_ROWS / 2;
  const more = byId(of + "-more");
  more.hidden = found.length <= FEW_ROWS;
  more.textContent = view.all ? "Show the first " + FEW_ROWS : "Show all " + count(found.length);
  byId(of + "-none").hidden = found.length > 0 || list.length === 0;
}

function chosen() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function poolLink(name, text) {
  const link = element("a", text);
  link.href = "#" + encodeURIComponent("pool-" + name);
  return link;
}

function drawTrouble(trouble) {
  const made = element("article", undefined, "trouble " + trouble.level);
  const what = element("p");
  const begin = "pool " + trouble.pool;
  what.append(element("span", trouble.level, "level " + trouble.level), " ");
  if (trouble.pool !== null && trouble.what.startsWith(begin + ":")) {
    what.append(poolLink(trouble.pool, begin), trouble.what.slice(begin.length));
  } else {
    what.append(trouble.what);
  }
  made.append(what, element("p", trouble.help, "help"));
  return made;
}

function drawTroubles(troubles) {
  show(byId("troubles"), (allTroubles ? troubles : troubles.slice(0, FEW_TROUBLES)).map(drawTrouble));
  const more = byId("troubles-more");
  more.hidden = troubles.length <= FEW_TROUBLES;
  more.textContent = allTroubles ? "Show the first " + FEW_TROUBLES : "Show all " + troubles.length + " problems";
}

function drawPools(pools) {
  const few = pools.length <= FEW_POOLS;
  byId("pools-table").hidden = few;
  if (few) {
    show(byId("pools"), pools.map(drawPool));
    return;
  }
  drawLong("pools", pools, (pool) => poolLink(pool.name, pool.name));
  const one = pools.filter((pool) => "pool-" + pool.name === chosen());
  show(byId("pools"), one.map(drawPool));
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
  levels = new Map();
  for (const trouble of [...troubles].reverse()) levels.set(trouble.pool, LEVELS.indexOf(trouble.level));
  drawTroubles(troubles);
  cached = status.cache ? status.cache.sites : null;
  const sum = (key) => status.sites.reduce((all, site) => all + (site.rates[key] || 0), 0);
  const own = status.processes;
  const body = status.bodies || {};
  show(byId("facts"), factsOf([
    ["requests per second", rate(sum("requests"))],
    ["failures per second", rate(sum("failures"))],
    ["connections", count(status.connections.now) + " of " + count(status.connections.max)],
    ["idle connections", count(status.connections.idle)],
    ["bodies being read", count(body.reading)],
    ["reactors", count(status.reactors.running) + (status.reactors.elastic ? " of at most " + count(status.reactors.most) : "")],
    ["temporary files", size(status.spool.bytes) + " of " + size(status.spool.max)],
    ...(cached ? [["stored pages", size(status.cache.bytes) + " of " + size(status.cache.max_bytes)]] : []),
    ["gateway memory", own ? size(own.gateway.memory) : "–"],
    ["rejected by kernel", count(status.kernel.overflows)],
    ["uptime", span(status.uptime)],
  ]));
  drawPools(status.pools);
  drawLong("sites", status.sites);
  drawPrograms(status.programs);
  drawEgress(status.egress);
  show(byId("listeners"), status.listeners.map((listener) => {
    const queue = listener.queue || {};
    const length = listener.queue ? count(queue.length) + " of " + count(queue.limit) : "–";
    return row([listener.name, listener.address, count(listener.accepted), length, count(queue.most)], [1]);
  }));
  document.documentElement.dataset.drawn = "yes";
}

// A new status has come.
function take(status) {
  const names = new Set(status.pools.map((pool) => pool.name));
  for (const name of [...history.keys()]) if (!names.has(name)) history.delete(name);
  status.pools.forEach(remember);
  const isFirst = last === null;
  last = status;
  draw(status);
  if (isFirst) showChosen();
}

function redraw() {
  if (last) draw(last);
}

document.addEventListener("click", (event) => {
  const { table, key, all } = event.target.dataset;
  if (table) {
    const view = views[table];
    // Names begin with a, numbers with the largest.
    view.down = view.key === key ? !view.down : key !== "name";
    view.key = key;
  } else if (all === "troubles") {
    allTroubles = !allTroubles;
  } else if (all) {
    views[all].all = !views[all].all;
  } else {
    return;
  }
  redraw();
});

document.addEventListener("input", (event) => {
  const { search } = event.target.dataset;
  if (!search) return;
  views[search].search = event.target.value;
  redraw();
});

// The pool that the address names.
function showChosen() {
  const pool = chosen() && byId(chosen());
  if (pool) pool.scrollIntoView({ block: "start" });
}

addEventListener("hashchange", () => {
  redraw();
  showChosen();
});

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
      take(await answer.json());
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
