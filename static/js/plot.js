/* Plotly under our content security policy and in our colours: loaded once, when the first chart is drawn. */

const RULES = "plotly.js-style-global";
let loading = null;

export function plotly() {
  loading ??= load();
  return loading;
}

async function load() {
  /* It puts its rules into the sheet of this id; without one it would add a <style>, which is refused. */
  if (!document.getElementById(RULES)) {
    const rules = document.createElement("link");
    rules.rel = "stylesheet";
    rules.id = RULES;
    rules.href = new URL("../css/plotly-rules.css", import.meta.url).href;
    await placed(rules);
  }
  const script = document.createElement("script");
  script.src = new URL("../vendor/plotly/plotly-basic.min.js", import.meta.url).href;
  await placed(script);
  return window.Plotly;
}

function placed(element) {
  return new Promise((resolve, reject) => {
    element.addEventListener("load", resolve, { once: true });
    element.addEventListener("error", () => {
      loading = null;
      element.remove();
      reject(new Error("The charts could not be loaded."));
    }, { once: true });
    document.head.append(element);
  });
}

/* The tokens as the scheme in force resolves them: a custom property itself still says light-dark(). */
const NAMES = ["ink", "muted", "faint", "line", "line-strong", "surface", "raised", "err", "err-soft", "trail", "good", "bad", "sans",
  ...Array.from({ length: 10 }, (_, slot) => `run-${slot}`)];
let colours = null;

export function theme() {
  if (colours) return colours;
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  colours = {};
  for (const name of NAMES) {
    if (name === "sans") colours[name] = getComputedStyle(document.body).fontFamily;
    else {
      probe.style.color = `var(--${name})`;
      colours[name] = getComputedStyle(probe).color;
    }
  }
  probe.remove();
  return colours;
}

/* Answers what ends it. */
export function onTheme(redraw) {
  const changed = () => {
    colours = null;
    redraw();
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", changed);
  const chosen = new MutationObserver(changed);
  chosen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  return () => {
    dark.removeEventListener("change", changed);
    chosen.disconnect();
  };
}

export function layout(changes = {}) {
  const { xaxis = {}, yaxis = {}, ...rest } = changes;
  const of = theme();
  const axis = {
    gridcolor: of.line,
    linecolor: of["line-strong"],
    zerolinecolor: of.line,
    tickfont: { color: of.muted, size: 11 },
    title: { font: { color: of.muted, size: 11 }, standoff: 6 },
    automargin: true,
    fixedrange: false,
  };
  return {
    font: { family: of.sans, size: 12, color: of.ink },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 44, r: 10, t: 8, b: 34 },
    showlegend: false,
    hovermode: "closest",
    hoverlabel: { bgcolor: of.raised, bordercolor: of["line-strong"], font: { family: of.sans, color: of.ink, size: 12 }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: of.faint, activecolor: of.ink },
    uirevision: "kept",
    ...rest,
    xaxis: { ...axis, showgrid: false, ...xaxis, title: { ...axis.title, ...xaxis.title } },
    yaxis: { ...axis, ...yaxis, title: { ...axis.title, ...yaxis.title } },
  };
}

export const CONFIG = {
  displaylogo: false, responsive: true, displayModeBar: false, doubleClick: "reset", showTips: false,
  modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
};

export function text(value) {
  /* Plotly reads tags and entities in its texts. */
  return String(value).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
