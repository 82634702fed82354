/* A field for code: line numbers, colours, Tab that indents, Enter that keeps the indentation. A text area under a
   coloured copy of its text. An editor from elsewhere would put its styles into the page by itself, which the
   page's policy forbids. */
import { complete, insert } from "./rubric_complete.js";
import { h } from "./rubric_dom.js";

const LEAST_LINES = 5;
const RULES = {
  python:
    /(?<c>#.*)|(?<s>[rbf]*(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(?<k>\b(?:def|return|if|elif|else|for|while|in|not|and|or|is|None|True|False|import|from|as|try|except|raise|with|lambda|pass|break|continue)\b)|(?<n>\b\d[\d_.]*\b)/g,
  json: /(?<k>"(?:\\.|[^"\\])*"(?=\s*:)|\b(?:true|false|null)\b)|(?<s>"(?:\\.|[^"\\])*"?)|(?<n>-?\b\d[\d.eE+-]*)/g,
  sql: /(?<c>--.*)|(?<s>'(?:''|[^'])*'?)|(?<k>\b(?:select|from|where|group|by|order|having|join|left|on|as|and|or|not|null|is|in|like|count|sum|min|max|avg|distinct|limit|with|union|case|when|then|else|end)\b)|(?<n>\b\d[\d.]*\b)/gi,
};

export function codeField({ value, language, completions = [], oninput, rows = LEAST_LINES }) {
  const numbers = h("div", { class: "numbers", "aria-hidden": "true" });
  const shown = h("pre", { class: "shown", "aria-hidden": "true" });
  const area = h("textarea", {
    class: "code-text",
    spellcheck: "false",
    autocomplete: "off",
    autocapitalize: "off",
    wrap: "off",
    dir: "ltr",
    value,
  });
  const hint = h("span", { class: "code-hint small muted" }, "Tab indents, Esc leaves", completions.length ? ", Ctrl Space completes" : "");
  const sheet = h("div", { class: "sheet-of-code" }, shown, area);
  const host = h("div", { class: "code" }, numbers, sheet);
  const draw = () => {
    const lines = area.value.split("\n");
    const n = Math.max(rows, lines.length + 1);
    area.rows = n;
    numbers.textContent = lines.map((_, i) => i + 1).join("\n");
    shown.replaceChildren(...coloured(area.value, RULES[language]), "\n");
    sheet.style.minWidth = `${Math.max(...lines.map((line) => line.length)) + 4}ch`;
  };
  if (completions.length) complete(area, sheet, completions);
  area.addEventListener("input", () => {
    draw();
    oninput(area.value);
  });
  area.addEventListener("keydown", (event) => keys(event, area, language));
  draw();
  return h("div", { class: "code-box" }, host, hint);
}

function coloured(text, rule) {
  if (!rule) return [text];
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(rule)) {
    const [kind] = Object.entries(match.groups).find(([, value]) => value !== undefined);
    parts.push(text.slice(at, match.index), h("span", { class: `tok-${kind}` }, match[0]));
    at = match.index + match[0].length;
  }
  parts.push(text.slice(at));
  return parts;
}

function keys(event, area, language) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const indent = language === "python" ? "    " : "  ";
  const start = area.value.lastIndexOf("\n", area.selectionStart - 1) + 1;
  const line = area.value.slice(start, area.selectionStart);
  if (event.key === "Tab" && !event.shiftKey) insert(area, indent);
  else if (event.key === "Tab") {
    const lead = area.value.slice(start).match(/^ */)[0].length;
    const n = Math.min(indent.length, lead);
    if (n) {
      const caret = area.selectionStart;
      area.setRangeText("", start, start + n, "preserve");
      area.setSelectionRange(Math.max(start, caret - n), Math.max(start, caret - n));
      area.dispatchEvent(new Event("input", { bubbles: true }));
    }
  } else if (event.key === "Enter") {
    const lead = line.match(/^ */)[0];
    insert(area, `\n${lead}${/[:{[(]\s*$/.test(line) ? indent : ""}`);
  } else return;
  event.preventDefault();
}
