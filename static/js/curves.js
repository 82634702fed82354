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
  for (const each of figures) if (each.area) seen.observe(each.element);
  onTheme(() => figures.forEach((each) => each.draw()));
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-enlarge]");
    if (button) enlarge(figures.find((each) => each.element.contains(button)), choice);
  });
  if (form) mountForm(root, form, figures, choice);
  const timer = setInterval(() => {
    if (!root.isConnected && !document.getElementById("plot-dialog")?.open) clearInterval(timer);
    else if (document.visibilityState === "visible") figures.filter((each) => each.isLive).forEach((each) => each.fetch());
  }, AGAIN_MS);
}

class Figure {
  constructor(element, url, choice) {
    Object.assign(this, { element, url, choice });
    this.area = element.querySelector("[data-area]");
    this.said = element.querySelector("[data-plot-said]");
    this.title = element.dataset.title;
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
    const query = new URLSearchParams([["key", this.element.dataset.plot], ...jobs.map((job) => ["job", job])]);
    if (byTime) query.set("by", "time");
    if (crowd) query.set("crowd", "1");
    try {
      const answer = await fetch(`${this.url}?${query}`, { credentials: "same-origin", signal: mine.signal });
      if (!answer.ok) throw new Error(`The server answered ${answer.status}.`);
      this.data = await answer.json();
      await this.draw();
      if (this.data.pending) setTimeout(() => this.asked === mine && this.fetch(), SOON_MS);
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error);
    }
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
    if (!this.said) return;
    this.said.replaceChildren(...parts);
    this.said.hidden = !parts.some(Boolean);
  }

  async draw() {
    if (!this.data) return;
    this.element.dispatchEvent(new CustomEvent("drawn"));
    if (!this.area) return;
    const plot = await plotly();
    const { data } = this;
    const isEmpty = !data.jobs.length && !data.crowd.n;
    this.element.dataset.state = isEmpty ? "empty" : "drawn";
    if (isEmpty) {
      plot.purge(this.area);
      this.say(this.choice().jobs.length ? "Not measured by any of these." : "Tick a job to see it.");
      return;
    }
    drawInto(plot, this.area, data, this.choice());
    this.say(data.pending ? `${data.pending.toLocaleString("en")} jobs are still being read…` : "");
  }
}

function drawInto(plot, area, data, { byTime, smooth, log }, isBig = false) {
  setUnit(byTime && hours(data));
  const made = layout({ ...axes(data, { byTime, log }), ...(isBig ? { showlegend: data.jobs.length > 1, legend: { orientation: "h", y: -0.14 }, margin: { l: 52, r: 14, t: 10, b: 44 } } : {}) });
  plot.react(area, traces(data, { smooth, byTime, dense: isBig }), made, { ...CONFIG, displayModeBar: isBig, modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]] });
  if (area.dataset.clicks === undefined) {
    area.dataset.clicks = "";
    area.on("plotly_click", ({ points }) => {
      const [step, url] = points[0]?.customdata ?? [];
      if (step > 0 && url) location.assign(`${url}steps/${step}/`);
    });
  }
}

async function enlarge(figure, choice) {
  const dialog = document.getElementById("plot-dialog");
  const area = dialog.querySelector("[data-area]");
  const said = dialog.querySelector("[data-plot-said]");
  dialog.querySelector("#plot-dialog-title").textContent = figure.title;
  dialog.querySelector("[data-unit]").textContent = "";
  said.textContent = "Loading…";
  dialog.showModal();
  const show = async () => {
    const plot = await plotly();
    if (!dialog.open) return;
    drawInto(plot, area, figure.data, choice(), true);
    dialog.querySelector("[data-unit]").textContent = figure.data.unit;
    said.textContent = "A click on a point opens the rollouts of its step. Drag to zoom, double-click to go back.";
  };
  /* A figure that is drawn nowhere else lives as long as the dialog. */
  if (!figure.area) Object.assign(figure, { isSeen: true, said });
  figure.element.addEventListener("drawn", show);
  dialog.addEventListener("close", async () => {
    figure.element.removeEventListener("drawn", show);
    if (!figure.area) Object.assign(figure, { isSeen: false, said: null });
    (await plotly()).purge(area);
    delete area.dataset.clicks;
  }, { once: true });
  if (figure.data && figure.area) await show();
  else await figure.fetch();
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
