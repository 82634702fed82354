/* Completion in a text field: what fits the word before the caret, chosen by keyboard or pointer. `entries` is a list,
   or a function of the text before the caret that gives one and whether it shows before a letter is typed. */
import { h, newId } from "./rubric_dom.js";

const WORD = /[\w$@.[\]"'*:-]*$/;
const SHOWN = 8;

export function complete(area, host, entries) {
  const list = h("ul", { class: "completions", role: "listbox", id: newId("complete"), "aria-label": "Completions", hidden: true });
  host.append(list);
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-controls", list.id);
  let found = [];
  let active = 0;

  const before = () => {
    const line = area.value.slice(0, area.selectionStart).split("\n").pop();
    return { line, token: WORD.exec(line)[0] };
  };

  const close = () => {
    list.hidden = true;
    found = [];
    area.removeAttribute("aria-activedescendant");
  };

  const show = (isAsked) => {
    const { token, line } = before();
    const wanted = token.replaceAll("'", '"');
    const { all, isEager } = typeof entries === "function" ? entries(line, token) : { all: entries, isEager: false };
    if (!isAsked && !isEager && (token.length < 2 || !/^[a-z$]/i.test(token))) return close();
    const last = wanted.split(/[[\]".]+/).filter(Boolean).pop() ?? "";
    found = all.filter((entry) => entry.text !== wanted && entry.text.startsWith(wanted));
    if (found.length < SHOWN && last.length > 1)
      found.push(...all.filter((entry) => !found.includes(entry) && entry.text !== wanted && entry.text.includes(last)));
    found = found.slice(0, SHOWN);
    active = 0;
    if (!found.length) return close();
    draw();
    place();
  };

  const draw = () => {
    list.hidden = false;
    list.replaceChildren(
      ...found.map((entry, i) =>
        h(
          "li",
          { role: "option", id: `${list.id}-${i}`, "aria-selected": String(i === active) },
          h("span", { class: "mono" }, entry.text),
          h("span", { class: "muted small" }, entry.about),
        ),
      ),
    );
    area.setAttribute("aria-activedescendant", `${list.id}-${active}`);
  };

  const place = () => {
    /* Fixed to the window: the field scrolls by itself, and would cut the list off. */
    const style = getComputedStyle(area);
    const box = area.getBoundingClientRect();
    const { token, line } = before();
    const row = area.value.slice(0, area.selectionStart).split("\n").length;
    const isCode = area.matches("textarea");
    const top = isCode ? box.top + parseFloat(style.paddingTop) + row * parseFloat(style.lineHeight) : box.bottom;
    const left = isCode ? box.left + parseFloat(style.paddingLeft) + (line.length - token.length) * widthOf(style) : box.left;
    list.style.top = `${Math.min(top + 2, innerHeight - list.offsetHeight - 8)}px`;
    list.style.left = `${Math.max(8, Math.min(left, innerWidth - list.offsetWidth - 8))}px`;
  };

  const accept = () => {
    const entry = found[active];
    const { token } = before();
    const from = area.selectionStart - token.length;
    area.setSelectionRange(from, area.selectionStart);
    insert(area, entry.text);
    close();
  };

  area.addEventListener("input", () => show(false));
  area.addEventListener("blur", close);
  addEventListener("scroll", () => list.hidden || close(), { capture: true, passive: true });
  area.addEventListener("click", close);
  area.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      show(true);
      return;
    }
    if (list.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      active = (active + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
      draw();
    } else if (event.key === "Enter" || event.key === "Tab") accept();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopImmediatePropagation();
  });
  list.addEventListener("mousedown", (event) => {
    event.preventDefault();
    active = [...list.children].indexOf(event.target.closest("li"));
    if (active >= 0) accept();
  });
}

function widthOf(style) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontSize} ${style.fontFamily}`;
  return pen.measureText("m").width;
}

/* As if it were typed: the field's own undo knows it. */
export function insert(area, text) {
  if (!document.execCommand("insertText", false, text)) {
    area.setRangeText(text, area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  }
}
