/* Curves of trainings as traces: lines in their jobs' colours, intervals, gaps with a mark, errors hatched. Pure. */
import { text, theme } from "./plot.js";

export function traces(data, { smooth = 0, byTime = false, isBig = false } = {}) {
  const of = theme();
  const made = [];
  if (data.crowd?.n) made.push(...bands(data.crowd, of, byTime));
  const isAlone = data.jobs.length <= 3;
  for (const job of data.jobs) made.push(...ofJob(job, of, { smooth: data.sparse ? 0 : smooth, byTime, isBig, isAlone }));
  return made;
}

/* All other jobs: from least to most, the middle four fifths, and their median. */
function bands(crowd, of, byTime) {
  const edge = { type: "scatter", mode: "lines", x: scaled(crowd.x, byTime), hoverinfo: "skip", showlegend: false, line: { width: 0 } };
  const fill = (alpha) => of["line-strong"].replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
  return [
    { ...edge, y: crowd.low },
    { ...edge, y: crowd.high, fill: "tonexty", fillcolor: fill(0.28) },
    { ...edge, y: crowd.tenth },
    { ...edge, y: crowd.ninetieth, fill: "tonexty", fillcolor: fill(0.45) },
    { ...edge, y: crowd.middle, line: { width: 1.4, dash: "dot", color: of.muted }, name: `median of ${crowd.n} others`, showlegend: true },
  ];
}

function ofJob(job, of, { smooth, byTime, isBig, isAlone }) {
  const colour = of[`run-${job.slot}`];
  const x = byTime && job.s ? scaled(job.s, true) : job.step;
  const name = text(job.note ? `${job.name} (${job.note})` : job.name);
  const line = { color: colour, width: 2, dash: job.dash ? "dash" : "solid", simplify: true };
  const few = job.y.length <= 60 && isAlone;
  const shared = { type: "scatter", x, name, connectgaps: false, customdata: job.step.map((step) => [step, job.url]) };
  const said = (value) => `<b>${name}</b><br>step %{customdata[0]}: ${value}<extra></extra>`;
  const aside = { showlegend: false };
  const made = [];
  const raw = {
    ...shared, y: job.y, mode: few || (isBig && isAlone) || job.low ? "lines+markers" : "lines", line, marker: { color: colour, size: few ? 5 : 3 },
    hovertemplate: job.low ? `<b>${name}</b><br>step %{customdata[0]}: %{y:.4~g}, 95 % %{customdata[2]}<extra></extra>` : said("%{y:.4~g}"),
  };
  if (job.low) {
    raw.customdata = job.step.map((step, i) => [step, job.url, job.low[i] === null ? "not known" : `${job.low[i].toFixed(2)} to ${job.high[i].toFixed(2)}`]);
    const known = (i) => job.low[i] !== null && job.y[i] !== null;
    raw.error_y = {
      type: "data", symmetric: false, color: colour, thickness: 1.2, width: 3,
      array: job.y.map((y, i) => (known(i) ? Math.max(0, job.high[i] - y) : 0)),
      arrayminus: job.y.map((y, i) => (known(i) ? Math.max(0, y - job.low[i]) : 0)),
    };
  }
  if (smooth > 0) {
    made.push({ ...raw, ...aside, opacity: 0.28, mode: "lines", line: { ...line, width: 1 } });
    made.push({ ...shared, y: smoothed(job.y, smooth), mode: "lines", line, hovertemplate: said("%{y:.4~g}, smoothed") });
  } else made.push(raw);
  const gaps = job.y.map((y, i) => (y === null ? i : -1)).filter((i) => i >= 0);
  if (gaps.length) {
    made.push({
      ...aside, type: "scatter", mode: "markers", yaxis: "y3", name, x: gaps.map((i) => x[i]), y: gaps.map(() => 0.03),
      customdata: gaps.map((i) => [job.step[i], job.url]), marker: { symbol: "x", size: 7, color: of.err },
      hovertemplate: said("no finite value"),
    });
  }
  if (job.lost) {
    made.push({
      ...aside, type: "bar", yaxis: "y2", name, x: byTime && job.lost_s ? scaled(job.lost_s, true) : job.lost.map(([step]) => step), y: job.lost.map(([, n]) => n),
      customdata: job.lost.map(([step]) => [step, job.url]), hovertemplate: said("%{y} without a score, left out"),
      marker: { color: of["err-soft"], line: { color: of.err, width: 1 }, pattern: { shape: "/", fgcolor: of.err, bgcolor: of["err-soft"], size: 5, solidity: 0.35 } },
    });
  }
  return made;
}

/* Minutes, or hours where they would be many, are the reader's unit: the axis says which. */
export function hours(data) {
  const most = Math.max(0, ...data.jobs.flatMap((job) => job.s ?? []), ...(data.crowd?.x ?? []));
  return most > 3 * 3600;
}

let unit_s = 60;
export function setUnit(isHours) {
  unit_s = isHours ? 3600 : 60;
}

function scaled(seconds, isTime) {
  return isTime ? seconds.map((s) => (s === null ? null : s / unit_s)) : seconds;
}

/* An exponential mean that weighs the first values fairly; a gap stays one. */
export function smoothed(values, weight) {
  let sum = 0;
  let known = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    known = weight * known + (1 - weight);
    return sum / known;
  });
}

export function axes(data, { byTime, log }) {
  const hasLost = data.jobs.some((job) => job.lost);
  return {
    barmode: "stack", bargap: 0.35,
    xaxis: { anchor: hasLost ? "y2" : "y", title: { text: byTime ? (hours(data) ? "hours" : "minutes") : "step" }, rangemode: "tozero" },
    yaxis: {
      domain: [hasLost ? 0.2 : 0, 1], type: log ? "log" : "linear",
      ...(data.top && !log ? { range: [0, data.top * 1.03], autorange: false } : { rangemode: log ? "normal" : "tozero" }),
    },
    yaxis2: { domain: [0, 0.12], visible: hasLost, showgrid: false, showticklabels: false, title: { text: "errored", font: { size: 10 } }, fixedrange: true, rangemode: "tozero", zeroline: false },
    yaxis3: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
  };
}
