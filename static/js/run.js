/* The live table of a run: rows appear and change as rollouts end; sort and filter live in the address. */
import { follow } from "./feed.js";
import { refreshSoon } from "./parts.js";

export function mount(element) {
  const table = new Table(element);
  if (element.dataset.ended !== undefined) return;
  const feed = follow(element, (events) => {
    for (const event of events) {
      if (event.kind === "rollout") table.put(event.payload);
      else if (event.kind === "tally") table.tally(event.payload);
      else if (event.kind === "capacity") table.capacity(event.payload);
      else refreshSoon();
      if (event.kind === "run.ended") feed.end();
    }
    table.soon();
  });
}

class Table {
  constructor(element) {
    this.element = element;
    this.body = element.querySelector("[data-rows] tbody");
    this.template = document.getElementById("rollout-row");
    this.pills = document.getElementById("pills").content;
    this.rows = new Map();
    this.known = new Map();
    for (const row of this.body.rows) {
      this.rows.set(row.dataset.id, row);
      this.known.set(row.dataset.id, { values: JSON.parse(row.dataset.values), text: null });
    }
    const query = new URLSearchParams(location.search);
    this.state = query.get("state") ?? "";
    this.family = query.get("family") ?? "";
    this.find = query.get("q") ?? "";
    this.sort = query.get("sort") ?? "";
    this.frame = 0;
    this.isUnsorted = true;
    this.controls();
    this.draw();
  }

  controls() {
    const { element } = this;
    for (const button of element.querySelectorAll("[data-states] button")) {
      button.addEventListener("click", () => this.choose("state", button.dataset.state));
    }
    const family = element.querySelector("[data-family]");
    if (family) {
      family.value = this.family;
      family.addEventListener("change", () => this.choose("family", family.value));
    }
    const find = element.querySelector("[data-find]");
    find.value = this.find;
    find.addEventListener("input", () => this.choose("find", find.value));
    element.querySelector("[data-clear]")?.addEventListener("click", () => {
      this.state = this.family = this.find = find.value = "";
      if (family) family.value = "";
      this.choose("state", "");
    });
    for (const head of element.querySelectorAll("th[data-key]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      head.append(button);
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const key = head.dataset.key;
        this.choose("sort", this.sort === key ? `-${key}` : this.sort === `-${key}` ? "" : key);
      });
    }
  }

  choose(name, value) {
    this[name] = value;
    this.isUnsorted = true;
    const query = new URLSearchParams(location.search);
    for (const [key, v] of [["state", this.state], ["family", this.family], ["q", this.find], ["sort", this.sort]]) {
      if (v) query.set(key, v);
      else query.delete(key);
    }
    const text = query.toString();
    history.replaceState(null, "", text ? `?${text}` : location.pathname);
    this.draw();
  }

  soon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  /* One rollout as the run's event carries it. */
  put(rollout) {
    const id = String(rollout.id);
    if (rollout.is_replaced) return this.drop(id);
    let row = this.rows.get(id);
    if (!row) {
      row = this.template.content.firstElementChild.cloneNode(true);
      row.dataset.id = id;
      const tick = row.querySelector("input[name=rollout]");
      if (tick) {
        tick.value = id;
        tick.ariaLabel = `Tick ${rollout.task}${rollout.replicate ? ` #${rollout.replicate}` : ""}`;
      }
      row.querySelector("a").href = this.element.dataset.rolloutUrl.replace("/rollouts/0/", `/rollouts/${id}/`);
      this.rows.set(id, row);
      this.body.append(row);
    }
    const slot = (name) => row.querySelector(`[data-slot="${name}"]`);
    const write = (name, text) => {
      const cell = slot(name);
      if (cell.textContent !== text) cell.textContent = text;
    };
    write("task", rollout.replicate ? `${rollout.task} #${rollout.replicate}` : rollout.task);
    write("family", rollout.family.replaceAll("_", " "));
    write("steps", String(rollout.steps || ""));
    write("tokens", rollout.tokens ? rollout.tokens.toLocaleString("en") : "");
    write("latency", rollout.latency_s === null ? "" : seconds(rollout.latency_s));
    write("reason", reason(rollout));
    const look = `${rollout.state} ${rollout.score}`;
    if (row.dataset.look !== look) {
      row.dataset.look = look;
      slot("score").replaceChildren(score(rollout.score));
      slot("pill").replaceChildren(this.pill(rollout));
    }
    row.classList.toggle("is-errored", rollout.state === "errored");
    if (row.dataset.state && row.dataset.state !== rollout.state) {
      row.classList.remove("flash");
      requestAnimationFrame(() => row.classList.add("flash"));
    }
    row.dataset.state = rollout.state;
    row.dataset.family = rollout.family;
    const before = this.known.get(id)?.values;
    const key = this.sort.replace(/^-/, "");
    if (!before || (key && before[key] !== rollout[key])) this.isUnsorted = true;
    this.known.set(id, { values: rollout, text: null });
  }

  /* How full the environment's servers are, in the server's words. */
  capacity({ text }) {
    const slot = this.element.querySelector('[data-slot="capacity"]');
    if (slot && slot.textContent !== text) slot.textContent = text;
  }

  /* A rollout whose worker was lost: its retry has a row of its own. */
  drop(id) {
    this.rows.get(id)?.remove();
    this.rows.delete(id);
    this.known.delete(id);
  }

  pill({ state, score }) {
    if (state !== "scored") return this.pills.querySelector(`[data-state="${state}"]`).cloneNode(true);
    const pill = this.pills.querySelector(`[data-look="${score >= 0.5 ? "pass" : "fail"}"]`).cloneNode(true);
    pill.lastElementChild.textContent = "scored";
    return pill;
  }

  tally(t) {
    const parts = [
      ["good", t.passed],
      ["bad", t.scored - t.passed],
      ["hatch", t.errored],
      ["na", t.not_applicable],
      ["off", t.cancelled],
      ["run", t.running],
    ];
    const done = t.scored + t.errored + t.not_applicable + t.cancelled;
    const slot = (name) => this.element.querySelector(`[data-slot="${name}"]`);
    const write = (name, text) => slot(name) && (slot(name).textContent = text);
    write("tally", t.mean === null ? "–" : t.mean.toFixed(2));
    write("n", t.scored.toLocaleString("en"));
    write("errored", t.errored.toLocaleString("en"));
    slot("errored")?.parentElement.classList.toggle("err-text", t.errored > 0);
    write("done", done.toLocaleString("en"));
    write("planned", t.planned.toLocaleString("en"));
    write("running", `${t.running} running`);
    write("tokens", compact(t.tokens));
    this.bar(parts, t.planned);
  }

  bar(parts, planned) {
    const group = this.element.querySelector("[data-bar] g");
    let x = 0;
    const bars = [];
    for (const [look, amount] of parts) {
      const number = this.element.querySelector(`[data-n="${look}"]`);
      if (number) {
        number.textContent = amount.toLocaleString("en");
        if (look !== "good" && look !== "bad") number.parentElement.hidden = amount === 0;
      }
      const width = planned ? (100 * amount) / planned : 0;
      if (width > 0) {
        const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        for (const [key, value] of [["class", look], ["x", x], ["width", width], ["height", 10]]) bar.setAttribute(key, value);
        if (look === "hatch") bar.setAttribute("fill", "url(#bar-hatch)");
        bars.push(bar);
      }
      x += width;
    }
    group?.replaceChildren(...bars);
  }

  draw() {
    const needle = this.find.trim().toLowerCase();
    const counts = new Map();
    let shown = 0;
    for (const [id, row] of this.rows) {
      const known = this.known.get(id);
      const { values } = known;
      if (needle) known.text ??= row.textContent.toLowerCase();
      counts.set(values.state, (counts.get(values.state) ?? 0) + 1);
      const fits =
        (!this.state || values.state === this.state) &&
        (!this.family || values.family === this.family) &&
        (!needle || known.text.includes(needle));
      if (row.hidden === fits) row.hidden = !fits;
      if (fits) shown += 1;
    }
    if (this.isUnsorted) this.order();
    this.isUnsorted = false;
    for (const button of this.element.querySelectorAll("[data-states] button")) {
      const { state } = button.dataset;
      const n = state ? (counts.get(state) ?? 0) : this.rows.size;
      const number = button.querySelector("[data-n]");
      if (number.textContent !== String(n)) number.textContent = n;
      button.hidden = Boolean(state) && n === 0 && this.state !== state;
      button.setAttribute("aria-pressed", String(state === this.state));
    }
    const filtered = shown !== this.rows.size;
    this.element.querySelector("[data-shown]").textContent = filtered ? `${shown} of ${this.rows.size} shown` : "";
    this.element.querySelector("[data-none]").hidden = shown > 0;
    for (const head of this.element.querySelectorAll("th[data-key]")) {
      const { key } = head.dataset;
      head.setAttribute("aria-sort", this.sort === key ? "ascending" : this.sort === `-${key}` ? "descending" : "none");
    }
  }

  order() {
    const down = this.sort.startsWith("-");
    const key = down ? this.sort.slice(1) : this.sort;
    const place = (id) => (key ? this.known.get(id).values[key] : Number(id));
    const ids = [...this.rows.keys()].sort((a, b) => {
      const [x, y] = [place(a), place(b)];
      /* What has no number goes last, in both directions. */
      if (x === null || x === undefined) return y === null || y === undefined ? a - b : 1;
      if (y === null || y === undefined) return -1;
      const order = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
      return (down ? -order : order) || a - b;
    });
    if (ids.every((id, i) => this.body.rows[i] === this.rows.get(id))) return;
    this.body.append(...ids.map((id) => this.rows.get(id)));
  }
}

function seconds(value) {
  if (value < 10) return `${value.toFixed(1)}\u00a0s`;
  if (value < 60) return `${Math.round(value)}\u00a0s`;
  return `${Math.floor(value / 60)}\u00a0min\u00a0${String(Math.round(value % 60)).padStart(2, "0")}\u00a0s`;
}

function compact(n) {
  if (n < 1000) return String(n);
  if (n < 10000) return `${(n / 1000).toFixed(1)}\u00a0k`;
  if (n < 1000000) return `${Math.round(n / 1000)}\u00a0k`;
  return `${(n / 1000000).toFixed(1)}\u00a0M`;
}

function score(value) {
  const element = document.createElement(value === null ? "span" : "b");
  element.textContent = value === null ? "–" : value.toFixed(2);
  if (value === null) element.className = "faint";
  return element;
}

function reason({ state, cause, message, answer }) {
  const why = message || cause || "";
  const cut = (text, limit) => {
    const line = text.split(/\s+/).join(" ").trim();
    return line.length <= limit ? line : `${line.slice(0, limit - 1)}…`;
  };
  if (state === "errored") return cut(cause && why !== cause ? `${cause.replaceAll("_", " ")}: ${why}` : why, 200);
  return answer ? cut(answer, 120) : cut(why, 200);
}

