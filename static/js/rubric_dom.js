/* Elements for the authoring page of rubrics. Texts are set as text, never as HTML. */

const icons = {};

export function useIcons(paths) {
  Object.assign(icons, paths);
}

/* h("button", { class: "btn", onclick, "aria-label": "…" }, "text", child) */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (name === "checked") element.checked = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export function icon(name, size = "") {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", `icon ${size}`);
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", icons[name]);
  svg.append(path);
  return svg;
}

let number = 0;

export function newId(head = "re") {
  number += 1;
  return `${head}-${number}`;
}

/* A labelled control with its help and a place for notes on it. */
export function field(label, control, { help = "", note = "", kind = "" } = {}) {
  control.id ||= newId();
  const helpId = help ? newId("help") : null;
  const noteId = note ? newId("note") : null;
  const said = [helpId, noteId].filter(Boolean).join(" ");
  const target = control.matches("input, select, textarea") ? control : (control.querySelector("textarea") ?? control);
  if (said) target.setAttribute("aria-describedby", said);
  target.id ||= newId();
  return h(
    "div",
    { class: `field ${kind}` },
    h("label", { for: target.id }, label),
    control,
    help && h("p", { class: "help", id: helpId }, help),
    note && h("div", { class: "notes", id: noteId, "data-note": note }),
  );
}

export function bars(weight) {
  const shown = Number.isInteger(weight) ? weight : 0;
  return h(
    "div",
    { class: "weight", role: "img", "aria-label": `weight ${weight} of 10`, title: `weight ${weight} of 10` },
    Array.from({ length: 10 }, (_, i) => h("i", { class: i < shown ? "on" : false })),
  );
}

export const words = (name) => String(name).replaceAll("_", " ").replaceAll("params.", "");
