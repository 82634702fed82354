/* The filter field: its text coloured as code, and completion of fields, operators and values the project has. */
import { complete } from "./rubric_complete.js";

const TOKEN = /("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)|(!=|!~|<=|>=|[=<>~])|([()\s,]+)|([^\s()=<>~,]+)/g;
const KEYWORDS = new Set(["and", "or", "not", "in", "is", "empty"]);
const COMPARED = /([^\s()=!<>~,"]+(?:\."(?:[^"\\]|\\.)*")?)\s*(!=|!~|<=|>=|=|<|>|~|(?:not\s+)?in\s*\([^)]*)\s*$/i;
const FIELD_THEN_SPACE = /(?:^|[\s(])([^\s()=!<>~,"]+(?:\."(?:[^"\\]|\\.)*")?)\s+$/;

export function mountFilter(field, section) {
  let asked = null;
  const words = () => (asked ??= load(field.dataset.wordsUrl));
  let fields = [];
  let isTyped = false;
  field.addEventListener("input", () => (isTyped = true), { once: true });
  const learn = async () => {
    fields = (await words()).fields;
    offerVerdictColumns(section, fields);
    // What was typed while the words were on their way is completed now.
    if (isTyped && document.activeElement === field) field.dispatchEvent(new Event("input", { bubbles: true }));
  };
  field.addEventListener("focus", learn, { once: true });
  section.querySelector(".columns")?.addEventListener("toggle", learn, { once: true });
  complete(field, section, (line, token) => candidates(line, token, fields));
  tint(field);
  return words;
}

async function load(url) {
  try {
    const answer = await fetch(url, { credentials: "same-origin" });
    if (answer.ok) return await answer.json();
  } catch {
    /* Without a connection the field still takes what is typed. */
  }
  return { fields: [], queues: [] };
}

export function candidates(line, token, fields) {
  const before = line.slice(0, line.length - token.length);
  const compared = COMPARED.exec(before);
  if (compared) {
    const known = fields.find(({ name }) => name === compared[1]);
    const all = (known?.values ?? []).map((text) => ({ text, about: known.name }));
    return { all, isEager: true };
  }
  const behind = FIELD_THEN_SPACE.exec(before);
  const known = behind && fields.find(({ name }) => name === behind[1]);
  if (known && !token) {
    return { all: known.operators.map((text) => ({ text: `${text} `, about: known.about })), isEager: true };
  }
  const words = ["and", "or", "not"].map((text) => ({ text, about: "joins conditions" }));
  const all = fields.map(({ name, about }) => ({ text: name, about }));
  return { all: before.trim() ? [...all, ...words] : all, isEager: false };
}

/* The words of the field once more behind it, in colours; the field's own text is transparent then. */
function tint(field) {
  const layer = field.parentElement.querySelector("[data-tinted]");
  const draw = () => {
    layer.replaceChildren(...pieces(field.value));
    field.parentElement.classList.toggle("is-tinted", field.value !== "");
    layer.scrollLeft = field.scrollLeft;
  };
  field.addEventListener("input", draw);
  field.addEventListener("scroll", () => (layer.scrollLeft = field.scrollLeft));
  field.addEventListener("keyup", () => (layer.scrollLeft = field.scrollLeft));
  draw();
}

function pieces(text) {
  const parts = [];
  let match;
  TOKEN.lastIndex = 0;
  while ((match = TOKEN.exec(text))) {
    const [whole, quoted, operator, space] = match;
    const after = text.slice(TOKEN.lastIndex);
    let look = "";
    if (quoted) look = "s";
    else if (operator) look = "o";
    else if (!space) {
      if (KEYWORDS.has(whole.toLowerCase())) look = "k";
      else if (/^\s*(!=|!~|<=|>=|[=<>~]|(not\s+)?in\s*\(|is\s+(not\s+)?empty)/i.test(after)) look = "f";
      else if (/^-?[\d.]+$/.test(whole)) look = "n";
    }
    if (!look) parts.push(whole);
    else {
      const piece = document.createElement("span");
      piece.className = look;
      piece.textContent = whole;
      parts.push(piece);
    }
  }
  return parts;
}

function offerVerdictColumns(section, fields) {
  const picks = section.querySelector("[data-columns]");
  if (!picks) return;
  const shown = new Set([...picks.querySelectorAll("input")].map((box) => box.value));
  for (const { name, about } of fields) {
    if (!name.startsWith("verdict.") || name.includes('"') || shown.has(name)) continue;
    const label = document.createElement("label");
    const box = document.createElement("input");
    [box.type, box.name, box.value] = ["checkbox", "col", name];
    label.append(box, ` verdict ${name.slice("verdict.".length).replaceAll("_", " ")}`);
    label.title = about;
    picks.append(label);
  }
}
