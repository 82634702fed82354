/* Curves of trainings: draws each figure when it scrolls into view, follows the choices beside it, enlarges one.
   The address reproduces what is shown. Figures of jobs that run are fetched again now and then. */
import { CONFIG, layout, onTheme, plotly } from "./plot.js";
import { axes, hours, setUnit, traces } from "./plot_curves.js";

const AGAIN_MS = 10_000;
const SOON_MS = 150;

export function mount(root) {
  const form = root.querySelector("[data-curves-form]");
  const fixed = root.dataset.jobs?.split(",").filter(Boolean);
  const choice = () => ({
    jobs: fixed ?? [...form.querySelectorAll("input[name=job]:checked")].map((box) => box.value),
    byTime: root.querySelector("[data-by]")?.value === "time",
    smooth: Number(root.querySelector("[data-smooth]")?.value ?? 0),
    log: Boolean(root.querySelector("[data-log]")?.checked),
    crowd: Boolean(root.querySelector("[data-crowd]")?.checked),
  });
  const figures = [...root.querySelectorAll("[data-plot]")].map((element) => new Figure(element, root.dataset.url, choice));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) figures.find((each) => each.element === entry.target).see(entry.isIntersecting);
  }, { rootMargin: "120px" });
  if (figures.some((each) => each.area)) plotly().catch(() => {}); // said by whoever draws
  for (const each of figures) if (each.area) seen.observe(each.element);
  onTheme(() => figures.forEach((each) => each.draw()));
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-enlarge]");
    if (button) enlarge(figures.find((each) => each.element.contains(button)), choice);
  });
  if (form) mountForm(root, form, figures, choice);
  const timer = setInterval(() => {
    if (!root.isConnected) clearInterval(timer);
    else if (document.visibilityState === "visible") figures.filter((each) => each.isLive).forEach((each) => each.fetch());
  }, AGAIN_MS);
}

/* Two at a time: an answer that comes whole is drawn while the next is on its way. */
const AT_ONCE = 2;
let asking = 0;
const waiting = [];
async function ask(address, signal) {
  if (asking >= AT_ONCE) await new Promise((resolve) => waiting.push(resolve));
  asking += 1;
  try {
    const answer = await fetch(address, { credentials: "same-origin", signal });
    if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
    return await answer.json();
  } finally {
    asking -= 1;
    waiting.shift()?.();
  }
}

/* One at a time, and a frame between two: what is drawn shows at once. */
let drawing = Promise.resolve();
function inTurn(draw) {
  const mine = drawing.then(() => new Promise((resolve) => setTimeout(resolve))).then(draw);
  drawing = mine.catch(() => {});
  return mine;
}

class Figure {
  constructor(element, url, choice) {
    Object.assign(this, { element, url, choice });
    this.key = element.dataset.plot;
    this.title = element.dataset.title;
    this.area = element.querySelector("[data-area]");
    this.said = element.querySelector("[data-plot-said]");
    this.isBig = element.matches("dialog");
    this.data = null;
    this.isSeen = false;
    this.isStale = true;
  }

  get isLive() {
    return this.isSeen && Boolean(this.data?.jobs.some((job) => job.live));
  }

  see(isSeen) {
    this.isSeen = isSeen;
    if (isSeen && this.isStale) this.fetch();
  }

  renew() {
    this.isStale = true;
    if (this.isSeen) this.fetch();
  }

  async fetch() {
    this.isStale = false;
    this.asked?.abort();
    const mine = (this.asked = new AbortController());
    const { jobs, byTime, crowd } = this.choice();
    const query = new URLSearchParams([["key", this.key], ["points", 2 * this.area.clientWidth], ...jobs.map((job) => ["job", job])]);
    if (byTime) query.set("by", "time");
    if (crowd) query.set("crowd", "1");
    try {
      this.data = expanded(await ask(`${this.url}?${query}`, mine.signal));
      await this.draw();
      if (this.data.pending) setTimeout(() => this.asked === mine && this.fetch(), SOON_MS);
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error);
    }
  }

  stop() {
    this.asked?.abort();
    this.isSeen = false;
  }

  fail(error) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "btn";
    button.textContent = "Try again";
    button.addEventListener("click", () => this.fetch());
    this.say(error.message === "Failed to fetch" ? "The server did not answer. " : `${error.message} `, button);
  }

  say(...parts) {
    this.said.replaceChildren(...parts);
    this.said.hidden = !parts.some(Boolean);
  }

  async draw() {
    if (!this.data) return;
    const plot = await plotly();
    await inTurn(() => this.drawNow(plot));
  }

  drawNow(plot) {
    const { data, isBig } = this;
    if (isBig && !this.element.open) return;
    const choice = this.choice();
    const isEmpty = !data.jobs.length && !data.crowd.n;
    this.element.dataset.state = isEmpty ? "empty" : "drawn";
    if (isEmpty) {
      plot.purge(this.area);
      this.say(choice.jobs.length ? "Not measured by any of these." : "Tick a job to see it.");
      return;
    }
    const { byTime, smooth, log } = choice;
    setUnit(byTime && hours(data));
    const big = { showlegend: data.jobs.length > 1, legend: { orientation: "h", y: -0.14 }, margin: { l: 52, r: 14, t: 10, b: 44 } };
    const shown = layout({ ...axes(data, { byTime, log }), ...(isBig ? big : {}) });
    plot.react(this.area, traces(data, { smooth, byTime, isBig }), shown, { ...CONFIG, displayModeBar: isBig });
    if (this.area.dataset.clicks === undefined) {
      this.area.dataset.clicks = "";
      this.area.on("plotly_click", ({ points }) => {
        const [step, url] = points[0]?.customdata ?? [];
        if (step > 0 && url) location.assign(`${url}steps/${step}/`);
      });
    }
    if (isBig) this.element.querySelector("[data-unit]").textContent = data.unit;
    const idle = isBig ? "A click on a point opens the rollouts of its step. Drag to zoom, double-click to go back." : "";
    this.say(data.pending ? `${data.pending.toLocaleString("en")} jobs are still being read…` : idle);
  }
}

/* Steps that follow one another come as the first alone. */
function expanded(data) {
  for (const job of data.jobs) if (!Array.isArray(job.step)) job.step = job.y.map((_, i) => job.step + i);
  return data;
}

function enlarge(figure, choice) {
  const dialog = document.getElementById("plot-dialog");
  Object.assign(dialog.dataset, { plot: figure.key, title: figure.title });
  dialog.querySelector("#plot-dialog-title").textContent = figure.title;
  dialog.querySelector("[data-unit]").textContent = "";
  const big = new Figure(dialog, figure.url, choice);
  big.say("Loading…");
  dialog.showModal();
  big.see(true);
  const timer = setInterval(() => big.isLive && document.visibilityState === "visible" && big.fetch(), AGAIN_MS);
  const redraw = () => big.draw();
  const stop = onTheme(redraw);
  dialog.addEventListener("close", async () => {
    clearInterval(timer);
    stop();
    big.stop();
    (await plotly()).purge(big.area);
    delete big.area.dataset.clicks;
  }, { once: true });
}

function mountForm(root, form, figures, choice) {
  const list = form.querySelector("[data-list]");
  const boxes = [...list.querySelectorAll("input[name=job]")];
  const smooth = root.querySelector("[data-smooth]");
  const said = root.querySelector("[data-smooth-said]");
  const asked = new URLSearchParams(location.search);
  if (asked.get("by") === "time") root.querySelector("[data-by]").value = "time";
  if (asked.has("smooth")) smooth.value = asked.get("smooth");
  root.querySelector("[data-log]").checked = asked.has("log");
  const crowd = root.querySelector("[data-crowd]");
  if (crowd) crowd.checked = asked.get("crowd") !== "0";
  const tell = () => {
    said.textContent = Number(smooth.value) ? Number(smooth.value).toFixed(2) : "off";
    form.querySelector("[data-count]").textContent = `${choice().jobs.length} of ${boxes.length.toLocaleString("en")}`;
  };
  const keep = () => {
    tell();
    const now = choice();
    const query = new URLSearchParams(now.jobs.map((job) => ["job", job]));
    if (!now.jobs.length) query.set("none", "");
    if (now.byTime) query.set("by", "time");
    if (now.smooth) query.set("smooth", String(now.smooth));
    if (now.log) query.set("log", "");
    if (crowd && !crowd.checked) query.set("crowd", "0");
    history.replaceState(null, "", `?${query}`);
  };
  const renew = () => {
    keep();
    figures.forEach((each) => each.renew());
  };
  const redraw = () => {
    keep();
    figures.forEach((each) => each.isSeen && each.draw());
  };
  const most = Number(form.dataset.most || 40);
  list.addEventListener("change", (event) => {
    if (choice().jobs.length > most) {
      event.target.checked = false;
      root.querySelector("[data-said]").textContent = `At most ${most} stand out: take one away first.`;
      return;
    }
    root.querySelector("[data-said]").textContent = "";
    renew();
  });
  for (const name of ["[data-by]", "[data-crowd]"]) root.querySelector(name)?.addEventListener("change", renew);
  for (const element of [smooth, root.querySelector("[data-log]")]) element.addEventListener("input", redraw);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.querySelector("[data-none]").addEventListener("click", () => {
    for (const box of boxes) box.checked = false;
    renew();
  });
  form.querySelector("[data-find]").addEventListener("input", (event) => {
    const words = event.target.value.trim().toLowerCase();
    let found = 0;
    for (const row of list.children) {
      row.hidden = Boolean(words) && !row.dataset.words.includes(words);
      found += row.hidden ? 0 : 1;
    }
    form.querySelector("[data-none-found]").hidden = found > 0;
  });
  tell();
}
